"""The home and its daemon: `up`, `token`, `gc`, `export` and `import`."""

import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer

from paceline.api.tokens import (
    Rights,
    TokenRegistry,
    home_name,
    own_token_of,
    read_registry,
    revoke_token,
    rotate_token,
)
from paceline.cli.output import AsJson, counted, left_text, print_table, print_value, say, table
from paceline.daemon.contact import daemon_url, dashboard_url
from paceline.daemon.home import Home, open_empty_store, open_home, output_limits
from paceline.daemon.times import absolute
from paceline.engine import command_log
from paceline.engine.work.retention import (
    STEP_EVENTS,
    RemovedWorkspaces,
    attempts_of_unfinished,
    is_last_of_unfinished,
    leave_workspaces,
    remove_workspaces,
    unneeded_workspaces,
)
from paceline.errors import InvalidInput
from paceline.executors import IsNeeded, PruneResult
from paceline.executors.spool import ArchivePruner
from paceline.settings import load_settings
from paceline.store.dump import export_store, import_store
from paceline.store.sql_store import SqlStore

# -- up -----------------------------------------------------------------------------------------------


def up_command(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where to listen.", show_default="127.0.0.1, or as in the settings"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free port.", show_default="7433, or as in the settings"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without TLS: the network can read the token.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the daemon: engine, HTTP API, gateway and dashboard, until it is stopped.

    When it is ready it prints one address with a token in it: open it in a browser. Add campaigns with
    [bold]paceline add[/bold], on the dashboard or over HTTP. [bold]Ctrl-C[/bold] stops it; running sessions continue
    without it and are found again at the next start.

    Exit codes: 0 stopped; 2 something is wrong with the settings, the token file, the certificate or the address;
    75 another engine runs this home.
    """
    from paceline.daemon.daemon import run_daemon  # the other commands need not load a web server

    with open_home() as home:
        run_daemon(home, host=host, port=port, insecure=insecure, as_json=as_json)


# -- token --------------------------------------------------------------------------------------------


def token_command(
    read_only: Annotated[bool, typer.Option("--read-only", help="The token that can only read.")] = False,
    url: Annotated[bool, typer.Option("--url", help="Print the address that opens the dashboard with it.")] = False,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new token; the present one is refused from now on.")
    ] = False,
    is_list: Annotated[
        bool, typer.Option("--list", help="List the tokens of all homes that share the database; never their values.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="NAME", help="Accept the token of that name no longer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the token of the HTTP API; it is created if there is none. It allows everything that you can do here.

    The database knows only its hash. Engines that run notice a new, rotated or revoked token within two seconds.
    """
    if (rotate or read_only or url) + is_list + (revoke is not None) > 1:
        raise InvalidInput("--list and --revoke stand alone: give one of them, without --rotate, --read-only and --url")
    with open_home() as home:
        if is_list:
            _print_list(home, read_registry(home.store), as_json=as_json)
        elif revoke is not None:
            _revoke(home, revoke, as_json=as_json)
        else:
            _print_token(home, "read" if read_only else "full", rotate=rotate, url=url, as_json=as_json)


def _print_token(home: Home, rights: Rights, *, rotate: bool, url: bool, as_json: bool) -> None:
    token = (rotate_token if rotate else own_token_of)(home.store, home.path, rights)
    address = dashboard_url(daemon_url(home), token)
    if as_json:
        print_value({"token": token, "rights": rights, "url": address})
    else:
        say(address if url else token)


def _print_list(home: Home, registry: TokenRegistry, *, as_json: bool) -> None:
    ours = home_name(home.path)
    entries = [
        {"name": each.name, "rights": each.rights, "since": each.since, "home": each.home, "is_own": each.home == ours}
        for each in registry.tokens
    ]
    if as_json:
        print_value({"tokens": entries})
        return
    if not entries:
        say("No tokens yet. `paceline up` and `paceline token` make those of this home.")
        return
    made = table("token", "rights", "since", "home")
    for each in registry.tokens:
        made.add_row(each.name, each.rights, absolute(each.since, home.zone), each.home)
    print_table(made)


def _revoke(home: Home, name: str, *, as_json: bool) -> None:
    found = revoke_token(home.store, name)
    if as_json:
        print_value({"ok": True, "name": found.name, "rights": found.rights})
        return
    say(f"revoked {found.name}: no engine accepts it from now on")
    if found.home == home_name(home.path):
        option = " --read-only" if found.rights == "read" else ""
        say(f"It was the token of this home; `paceline token{option} --rotate` makes a new one.", style="yellow")


# -- gc -----------------------------------------------------------------------------------------------


def gc_command(
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove workspaces with uncommitted work.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove prompts, output and events that are older than \\[retention] keeps, or too much for its max_disk.

    An engine does the same in small steps while it runs. The last attempt of a unit that is not done or cancelled is
    always kept, however old it is.

    Workspaces of done and cancelled units are removed too, and their branches once all their commits are merged.
    """
    with open_home() as home:
        removed = _remove_output(home, is_dry_run)
        events = 0 if is_dry_run else _remove_events(home)
        unneeded = unneeded_workspaces(home.store, home.path)
        folders = remove_workspaces(unneeded, force=force, dry_run=is_dry_run)
        left = leave_workspaces(home.store, unneeded, force=force, dry_run=is_dry_run)
        if not is_dry_run:
            counts: dict[str, Any] = {"outputs": removed.attempts, "events": events, "workspaces": folders.removed}
            command_log.send(home.store, "gc", now=time.time(), **counts)
        if as_json:
            outputs = {"attempts": removed.attempts, "bytes": removed.bytes}
            shown = {"outputs": outputs, "events": None if is_dry_run else events, "workspaces": folders}
            shown["left_to_hosts"] = left
            print_value({"ok": True, "dry_run": is_dry_run, **shown})
            return
        what = f"the output of {counted(removed.attempts, 'attempt')} ({_size_text(removed.bytes)})"
        say(f"would remove {what}" if is_dry_run else f"removed {what} and {counted(events, 'event')}")
        _print_workspaces(folders, is_dry_run)
        if left:
            say(left_text(left))


def _print_workspaces(folders: RemovedWorkspaces, is_dry_run: bool) -> None:
    if folders.removed or folders.branches:
        branches = f"{len(folders.branches)} merged {'branch' if len(folders.branches) == 1 else 'branches'}"
        what = f"{counted(folders.removed, 'workspace')} and {branches}"
        say(f"would remove {what}" if is_dry_run else f"removed {what}")
    for kept in folders.kept:
        say(f"kept {kept.path}: {kept.reason}")


def _remove_output(home: Home, is_dry_run: bool) -> PruneResult:
    pruner = ArchivePruner(home.spool(), is_dry_run=is_dry_run)
    return pruner.prune_all(output_limits(home.settings), _needed_attempts(home), time.time())


def _remove_events(home: Home) -> int:
    """Remove old events in transactions of a bounded size, so that an engine can write in between."""
    keep = home.settings.retention.events
    removed = 0
    while keep is not None:
        count = command_log.prune_history(home.store, before=time.time() - keep, limit=STEP_EVENTS)
        removed += count
        if count < STEP_EVENTS:
            break
    return removed


def _needed_attempts(home: Home) -> IsNeeded:
    """Return what decides about an attempt. Those of unknown units are looked up in all units, once."""
    unfinished = functools.cache(lambda: attempts_of_unfinished(home.store))

    def is_needed(attempt_id: str, unit_id: str | None) -> bool:
        if unit_id is None:
            return attempt_id in unfinished()
        return is_last_of_unfinished(home.store, attempt_id, unit_id)

    return is_needed


def _size_text(size: int) -> str:
    """Return a size in the unit that people would use: 4.0 kB, 12.3 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


# -- export and import --------------------------------------------------------------------------------


def export_command(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Where to write; - is the standard output.")] = "-",
) -> None:
    """Write everything that the home has stored to FILE, as JSON lines.

    The home may be in use: FILE has one consistent state. It has prompts and answers, so only you can read it.
    [bold]paceline import FILE[/bold] fills another home with it, also one with another kind of database. Output and
    logs of sessions are files of the home, and not in FILE.
    """
    with open_home() as home, _written(file) as stream:
        rows = export_store(cast(SqlStore, home.store), stream.write)
    sys.stderr.write(f"exported {counted(rows, 'row')}\n")


@contextlib.contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """Give the stream to write. A file is there whole, or not at all; a pipe or device stays what it is."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    part = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            part = stream.name
            yield cast(BinaryIO, stream)
        os.replace(part, path)
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}; name another file") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `paceline export` wrote; - is the standard input.")],
    as_json: AsJson = False,
) -> None:
    """Fill the home, whose database must be empty, with what [bold]paceline export[/bold] wrote.

    No engine may run here meanwhile. Everything is imported, or nothing. Run no engine in the old home again: it would
    do the same work twice.

    Exit codes: 0 imported; 2 the database is not empty, or the file is cut off or no export; 75 an engine runs here.
    """
    settings = load_settings(Path.cwd(), os.environ)
    with _read(file) as stream, open_empty_store(settings) as store:
        rows = import_store(store, stream)
    if as_json:
        print_value({"ok": True, "rows": rows})
    else:
        say(f"imported {counted(rows, 'row')}")


@contextlib.contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield stream
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}; name a file that `paceline export` wrote") from error
