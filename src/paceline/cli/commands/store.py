"""`store copy`: everything that a store holds, copied to another one."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from paceline.cli.control import counted
from paceline.cli.options import AsJson
from paceline.cli.output import print_value, say
from paceline.config_files import checks
from paceline.errors import InvalidInput, InvalidSettings, StoreError
from paceline.leadership import ENGINE, HOST, LeaderLock, no_leader
from paceline.settings import Settings, load_settings
from paceline.store.sqlite import BUSY_SECONDS
from paceline.store.sqlite_copy import SqliteCopySide
from paceline.store.table_copy import CopySide, Report, Stage, copy_store

app = typer.Typer(no_args_is_help=True)

ADDRESS_HELP = "A SQLite file (a path, or sqlite:///PATH), or postgresql://HOST/DATABASE."


@app.callback()
def store() -> None:
    """Move what a home has stored to another database."""


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help=ADDRESS_HELP)],
    destination: Annotated[str, typer.Argument(metavar="DST", help=f"{ADDRESS_HELP} It must be empty.")],
    as_json: AsJson = False,
) -> None:
    """Copy everything that a database of Paceline holds into an empty one, and compare every row.

    No engine may use either of them. The copy is complete or not there at all, also if it is killed. SRC stays as it
    is. Afterwards set store.url to DST: an engine then continues where the last one stopped.
    """
    began = time.monotonic()
    settings = load_settings(Path.cwd(), os.environ)
    ends = [_Address(source, "SRC"), _Address(destination, "DST")]
    if ends[0].is_same_as(ends[1]):
        raise InvalidInput(f"SRC and DST are the same: {ends[0].shown}; name another database as DST")
    with contextlib.ExitStack() as held:
        gone = frozenset().union(*(held.enter_context(_without_engines(end, settings)) for end in ends))
        sides = [held.enter_context(contextlib.closing(end.open(is_source=end is ends[0]))) for end in ends]
        report = held.enter_context(_progress(is_shown=not as_json))
        rows = copy_store(sides[0], sides[1], gone=gone, report=report)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        places = {"source": ends[0].shown, "destination": ends[1].shown}
        print_value({"ok": True, **places, "rows": rows, "seconds": seconds})
        return
    _print_result(ends, rows, seconds)


class _Address:
    """The address of a store as a person gives it. `path` is the file, if it is SQLite."""

    def __init__(self, given: str, argument: str) -> None:
        self.path: Path | None = None
        self._url = given
        self.shown = _without_password(given)
        if "://" in given or given.startswith(("sqlite:", "postgresql:", "postgres:")):
            try:
                checks.store_url(given)
            except InvalidInput as error:
                raise InvalidInput(f"{argument} {self.shown!r} {error}, or a path") from None
        if given.startswith("sqlite:///") or "://" not in given:
            self.path = Path(given.removeprefix("sqlite:///")).expanduser().absolute()
            self.shown = f"sqlite:///{self.path}"

    def is_same_as(self, other: "_Address") -> bool:
        if self.path is None or other.path is None:
            return self._url == other._url
        return self.path.resolve() == other.path.resolve()

    def open(self, *, is_source: bool) -> CopySide:
        if self.path is None:
            return self._open_postgres(is_source=is_source)
        if is_source and not (self.path.exists() and self.path.stat().st_size):
            raise InvalidInput(f"there is no database to copy at {self.path}")
        if not is_source:
            _create_folder_of(self.path)
        return SqliteCopySide.at(str(self.path), busy_seconds=BUSY_SECONDS)

    def _open_postgres(self, *, is_source: bool) -> CopySide:
        try:
            from paceline.store.postgres_copy import PostgresCopySide
        except ImportError as error:
            raise InvalidSettings(
                f"{self.shown} is a PostgreSQL database, and {error.name} is not installed; "
                "run: pip install 'paceline[postgres]'"
            ) from error
        return PostgresCopySide.at(self._url, busy_seconds=BUSY_SECONDS, is_source=is_source)


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if not checks.has_password(url):
        return url
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}" if user else host
    query = "&".join(part for part in parts.query.split("&") if not part.startswith("password="))
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def _create_folder_of(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {path.parent}: {error.strerror}; choose another place") from error


@contextlib.contextmanager
def _without_engines(address: _Address, settings: Settings) -> Iterator[frozenset[str]]:
    """Keep engines of this machine out of the home of a SQLite file. Yield the owners that are gone for certain.

    Engines of other machines, and those of a PostgreSQL database, are known by the lease in the store.
    """
    with contextlib.ExitStack() as held:
        gone: set[str] = set()
        for home in _homes_of(address, settings):
            left = [LeaderLock(home, name).left_behind() for name in (ENGINE, HOST)]
            held.enter_context(no_leader(home, "everything it stores from now on would be missing in the copy"))
            gone |= {leader.owner for leader in left if leader is not None}
        yield frozenset(gone)


def _homes_of(address: _Address, settings: Settings) -> set[Path]:
    """Return the homes whose engines use the file: the folder that it is in, and the home whose settings name it."""
    if address.path is None:
        return set()
    folder = address.path.parent
    homes = {folder} if any((folder / name).exists() for name in (ENGINE, HOST)) else set()
    is_named = settings.sqlite_path is not None and settings.sqlite_path.absolute() == address.path
    return homes | ({settings.home} if is_named and settings.home.exists() else set())


@contextlib.contextmanager
def _progress(*, is_shown: bool) -> Iterator[Report]:
    """Show a bar on a terminal. Yield what moves it."""
    console = Console(stderr=True)
    if not (is_shown and console.is_terminal):
        yield lambda stage, table, done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("copying")

        def report(stage: Stage, table: str, done: int, total: int) -> None:
            bar.update(task, description=f"{stage} {table}", completed=done, total=total)

        yield report


def _print_result(ends: list[_Address], rows: Mapping[str, int], seconds: float) -> None:
    what = f"{counted(rows['campaigns'], 'campaign')}, {counted(rows['units'], 'unit')}"
    say(f"copied {what} and {counted(rows['events'], 'event')} in {seconds:g} s; every row is the same in both")
    say(f'Next: set store.url = "{ends[1].shown}" in paceline.toml, or PACELINE_STORE_URL, and start the engine.')
    say(f"{ends[0].shown} is as it was. Run no engine on it again: it would do the same work twice.")
