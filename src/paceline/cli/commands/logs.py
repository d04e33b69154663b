"""What a unit printed and changed, on this machine or another host: `logs` and `diff`."""

import asyncio
import codecs
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from paceline.agents.account import split_login
from paceline.agents.transcript_reader import TranscriptReader
from paceline.cli.output import FOLLOW_SECONDS, AsJson, Follow, UnitName, find_unit, flag, option, print_value, say
from paceline.client.daemon_calls import DaemonConnection, decode_reply, error_of
from paceline.core.values.session_output import Channel
from paceline.daemon.home import Home, open_home
from paceline.errors import PacelineError, UnknownName
from paceline.executors.spool import OutputReader, is_locked
from paceline.store import Unit
from paceline.views.safe_text import printable
from paceline.views.transcript import NO_OUTPUT, Passage, TranscriptText, transcript_provider
from paceline.views.unit_changes import unit_change, unit_patch

ANSWER_SECONDS = 30.0
"""How long the daemon may take for a piece: its host answers within 15 s, or not at all."""


# -- logs ---------------------------------------------------------------------------------------------

CHANNELS: tuple[Channel, ...] = ("stdout", "stderr", "screen")
LABEL_STYLES: Final = {"said": "bold", "tool": "bold cyan", "result": "dim", "error": "bold red", "notice": "yellow"}


def logs_command(
    unit: UnitName,
    channel: Annotated[Channel | None, option(None, "Only this channel.")] = None,
    follow: Follow = False,
    raw: Annotated[bool, flag("The events of the agent as it printed them.", "--raw")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last attempt of a unit said and did.

    Agents that print events are shown as a transcript: what was said, tools, results and notices. `--raw` prints the
    events themselves. The output of other commands is printed as it is; on a terminal, control characters are removed,
    because the output of an agent may be hostile, and a pipe gets the bytes unchanged.
    """
    channels = [each for each in CHANNELS if channel in (None, each)]
    with open_home() as home:
        found = find_unit(home.store, unit)
        provider = None if raw else transcript_provider(home.store, home.settings, found)
        writers = {each: Writer() for each in channels}
        if provider is not None and "stdout" in writers:
            writers["stdout"] = TranscriptWriter(provider, home.zone)
        if split_login(found.account or "")[1] and found.attempt_id is not None:
            print_remote_output(found, writers, follow=follow, as_json=as_json)
            return
        folder = _output_folder(home, found)
        if as_json:
            _print_values(found, {each: b"".join(iter(OutputReader(folder, each).read, b"")) for each in channels})
            return
        outputs = [(OutputReader(folder, each), writer) for each, writer in writers.items()]
        has_output = _print_output(outputs, lambda: _output_folder(home, found), follow=follow)
        if not has_output and sys.stdout.isatty():
            say("(nothing was printed)", style="dim")


def _output_folder(home: Home, unit: Unit) -> str:
    if unit.attempt_id is None:
        raise UnknownName(f"{unit.id} has not been started yet; `paceline why {unit.id}` shows what holds it")
    folder = home.spool().folder(unit.attempt_id)
    if folder is None:
        raise UnknownName(f"{unit.id} {NO_OUTPUT} (attempt {unit.attempt_id})")
    return folder


def _print_values(unit: Unit, printed: Mapping[Channel, bytes]) -> None:
    texts: dict[str, str] = {channel: data.decode(errors="replace") for channel, data in printed.items() if data}
    print_value({"unit": unit.id, "attempt": unit.attempt_id, **texts})


def _print_output(
    outputs: list[tuple[OutputReader, "Writer"]], find_folder: Callable[[], str], *, follow: bool
) -> bool:
    """Print the output, with `follow` until the session ends. Returns whether there was any."""
    has_output = False
    while True:
        folder = find_folder()
        is_live = is_locked(folder)  # checked before reading, so that the last output is not missed
        is_last = not (follow and is_live)
        for reader, writer in outputs:
            reader.continue_in(folder)
            while piece := reader.read(is_over=not is_live):
                has_output = True
                writer.write(piece)
        if is_last and find_folder() == folder:  # else it was moved to the archive meanwhile
            for _, writer in outputs:
                writer.close()
            return has_output
        if not is_last:
            time.sleep(FOLLOW_SECONDS)


class Writer:
    """Prints bytes: unchanged to a pipe, and without control characters to a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end within a character

    def write(self, piece: bytes) -> None:
        if sys.stdout.isatty():
            sys.stdout.write(printable(self._decoder.decode(piece).replace("\r\n", "\n")))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()

    def close(self) -> None:
        """Print what was kept back until the end."""


class TranscriptWriter(Writer):
    """Prints the events of an agent as a transcript, with colours on a terminal."""

    def __init__(self, provider: str, zone: ZoneInfo) -> None:
        self._reader = TranscriptReader(provider)
        self._text = TranscriptText(zone)
        self._console = Console(highlight=False, markup=False, soft_wrap=True)

    def write(self, piece: bytes) -> None:
        self._print(self._text.passages(self._reader.feed(piece)))

    def close(self) -> None:
        self._print(self._text.passages(self._reader.flush()))
        self._print(self._text.close())

    def _print(self, passages: Iterator[Passage]) -> None:
        if self._console.is_terminal:
            for passage in passages:
                self._console.print(Text(passage.text, style=LABEL_STYLES.get(passage.label, "")), end="")
        else:
            sys.stdout.buffer.write("".join(passage.text for passage in passages).encode("utf-8", "replace"))
        sys.stdout.flush()


def print_remote_output(unit: Unit, writers: Mapping[Channel, Writer], *, follow: bool, as_json: bool) -> None:
    """Print what the last attempt of the unit has printed on its host, with `follow` until it ends."""
    if as_json:
        kept = {channel: _Kept() for channel in writers}
        asyncio.run(_copy(unit, kept, follow=False))
        _print_values(unit, {channel: each.data for channel, each in kept.items()})
    else:
        asyncio.run(_copy(unit, writers, follow=follow))


class _Kept(Writer):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, piece: bytes) -> None:
        self.data += piece


async def _copy(unit: Unit, writers: Mapping[Channel, Writer], *, follow: bool) -> None:
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


# -- diff ---------------------------------------------------------------------------------------------


def diff_command(unit: UnitName, as_json: AsJson = False) -> None:
    """Show what a unit changed, as a patch: its commit once it is done, before that also what is not committed yet.

    `git apply` reads the output. On a terminal, control characters are removed: an agent's work may be hostile.
    """
    with open_home() as home:
        found = find_unit(home.store, unit)
    change = unit_change(found)
    there = None
    if change.host is not None and found.state != "done":
        there = read_remote_change(found)
    pieces = unit_patch(found) if there is None else iter([there.patch.encode()])
    if there is not None and there.truncated:
        typer.echo(f"Only the beginning: all of it comes from {change.host} when it is committed.", err=True)
    if as_json:
        print_value({**msgspec.structs.asdict(change), "patch": b"".join(pieces).decode(errors="replace")})
        return
    empty = f"{found.id} changed nothing"
    if change.host is not None and found.state != "done" and there is None:
        empty = f"no change of {found.id} has come here from {change.host}, which cannot be asked now"
    writer, has_change = Writer(), False
    for piece in pieces:
        has_change = has_change or bool(piece)
        writer.write(piece)
    if not has_change and sys.stdout.isatty():
        say(f"({empty})", style="dim")
    elif not has_change:
        typer.echo(empty, err=True)


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
