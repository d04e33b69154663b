"""The change in a workspace on another host, which the daemon asks for there."""

import asyncio
from typing import Final
from urllib.parse import quote

import msgspec

from paceline.client.daemon_calls import DaemonConnection, decode_reply
from paceline.errors import PacelineError
from paceline.store import Unit

ANSWER_SECONDS: Final = 30.0
"""How long the daemon may take: its host answers within 15 s, or not at all."""
MOST_BYTES: Final = 4 << 20
"""The most that the daemon sends of a patch."""


class RemotePatch(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a patch, as text without control characters."""

    patch: str
    truncated: bool


def read_remote_change(unit: Unit) -> RemotePatch | None:
    """Return what a unit has changed on its host by now; None if no daemon answers."""
    try:
        return asyncio.run(_read(unit))
    except PacelineError:
        return None


async def _read(unit: Unit) -> RemotePatch:
    daemon = DaemonConnection(None, None)
    try:
        path = f"/v1/units/{quote(unit.id)}/diff?most_bytes={MOST_BYTES}"
        return decode_reply(await daemon.send("GET", path, within=ANSWER_SECONDS), RemotePatch)
    finally:
        await daemon.aclose()
