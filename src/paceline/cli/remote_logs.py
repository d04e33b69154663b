"""The output of a session on another host, which the daemon fetches from there."""

import asyncio
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

from paceline.cli.output import FOLLOW_SECONDS, print_value
from paceline.client.daemon_calls import DaemonConnection, error_of
from paceline.core.values.channels import Channel
from paceline.store import Unit

ANSWER_SECONDS = 30.0
"""How long the daemon may take for a piece: its host answers within 15 s, or not at all."""


class PieceWriter(Protocol):
    """Prints one channel."""

    def write(self, piece: bytes) -> None: ...

    def close(self) -> None: ...


def print_remote_output(unit: Unit, writers: Mapping[Channel, PieceWriter], *, follow: bool, as_json: bool) -> None:
    """Print what the last attempt of the unit has printed on its host, with `follow` until it ends."""
    if as_json:
        kept = {channel: _Kept() for channel in writers}
        asyncio.run(_copy(unit, kept, follow=False))
        answer: dict[str, str | None] = {"unit": unit.id, "attempt": unit.attempt_id}
        answer.update((name, each.data.decode(errors="replace")) for name, each in kept.items() if each.data)
        print_value(answer)
    else:
        asyncio.run(_copy(unit, writers, follow=follow))


class _Kept:
    """Keeps what would be printed."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, piece: bytes) -> None:
        self.data += piece

    def close(self) -> None:
        """Do nothing: everything is kept."""


async def _copy(unit: Unit, writers: Mapping[Channel, PieceWriter], *, follow: bool) -> None:
    daemon = DaemonConnection(None, None)
    try:
        positions = dict.fromkeys(writers, 0)
        open_channels = dict(writers)
        while open_channels:
            has_news = False
            for channel, writer in list(open_channels.items()):
                path = f"/v1/units/{quote(unit.id)}/output?channel={channel}&position={positions[channel]}"
                answer = await daemon.send("GET", path, within=ANSWER_SECONDS)
                if not answer.is_success:
                    raise error_of(answer)
                positions[channel] = int(answer.headers["x-paceline-position"])
                has_news = has_news or bool(answer.content)
                writer.write(answer.content)
                # A last part without a place in the recording comes with every complete answer.
                if answer.headers["x-paceline-complete"] == "1" or not (answer.content or follow):
                    writer.close()
                    del open_channels[channel]
            if open_channels and not has_news:
                await asyncio.sleep(FOLLOW_SECONDS)
    finally:
        await daemon.aclose()
