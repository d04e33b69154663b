"""`exec -- CMD`: any command inside a slot. A command that ends at a limit waits and runs again."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from paceline.agents import Account, Task, load_agent, prepare_session
from paceline.cli.completion import complete_scope
from paceline.cli.inputs import local_zone
from paceline.cli.output import INTERRUPTED, one_line
from paceline.cli.time_text import relative
from paceline.cli.wiring import Home, open_home
from paceline.config_files.documents import did_you_mean
from paceline.core import Deferred
from paceline.core.signals import (
    AnySignal,
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
)
from paceline.core.values.scopes import SESSIONS, canonical_scope, is_provider_scope, path_scopes
from paceline.detect import StreamReader
from paceline.detect.stream import Channel
from paceline.engine.external_slots.standalone_host import ProcessSlot
from paceline.errors import InvalidInput, UnknownName
from paceline.executors.command_runner import run_in_pipes, run_in_terminal

CONTEXT_SETTINGS = {"ignore_unknown_options": True}
"""Options after the command's name belong to it."""

NOT_FOUND = 127
"""The exit code of a shell for a program that is not on the PATH."""
LIMITS = ("quota_window", "rate_limit", "overloaded")
"""Outcomes that say nothing about the command's own work: the command is run again."""


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, which scopes it occupies, and how its output is read."""

    command: tuple[str, ...]
    env: dict[str, str]
    scopes: tuple[str, ...]
    reported: str
    """The scope that its limit signals are reported for."""
    provider: str


def command(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE", help="What it occupies: provider/account/model, or less.", autocompletion=complete_scope
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="AGENT", help="The agent whose output it prints.", show_default="by its name")
    ] = None,
    priority: Annotated[int, typer.Option(help="A higher priority goes first.")] = 0,
) -> None:
    """Run any command inside a slot, sharing the limits with everything else on this machine.

    It waits until there is room. If the command ends at a rate limit or a spent window, it waits and is run again.
    The exit code is the command's own.

    [bold]paceline exec --scope anthropic/max-1/opus-4-6 -- claude -p "Tidy the docs"[/bold]
    """
    with open_home() as home:
        request = _read_request(home, tuple(command), scope, agent)
        raise typer.Exit(_run_until_done(home, request, priority))


def _run_until_done(home: Home, request: ExecRequest, priority: int) -> int:
    """Run the command until it ends for another reason than a limit, and return its exit code."""
    program = request.command[0]
    if shutil.which(program, path=request.env.get("PATH")) is None:
        sys.stderr.write(f"paceline: {one_line(program)} is not a program on your PATH\n")
        return NOT_FOUND
    slot = home.process_slot()
    slot.check(request.scopes, priority)
    try:
        while True:
            slot.acquire(request.scopes, priority, _print_wait)
            code, signals, is_limited = _run_once(request, slot)
            for each in signals:
                slot.report(request.reported, each)
            slot.release()
            if not is_limited:
                return code
            sys.stderr.write(f"paceline: {one_line(program, 60)} met a limit; it runs again when there is room\n")
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        slot.close()


def _read_request(home: Home, command: tuple[str, ...], scope: str | None, agent: str | None) -> ExecRequest:
    """Return the checked request. Without `agent` the name of the program decides which agent it is."""
    program = os.path.basename(command[0])
    known = home.settings.agent_names()
    if agent is not None and agent not in known:
        raise UnknownName(f"there is no agent {agent!r:.60}{did_you_mean(agent, known)}")
    name = agent or (program if program in known else None)
    profile = home.settings.agent(name) if name else load_agent("command")
    own = f"agent:{name or program}"
    scopes: tuple[str, ...] = (SESSIONS, canonical_scope(own))
    account: Account | None = None
    if scope is not None:
        scope = canonical_scope(scope)
        if not is_provider_scope(scope):
            raise InvalidInput(f"{scope} is not a provider path; write provider, provider/account or more")
        scopes += path_scopes(scope)
        settings = home.settings.accounts.get(scope.split("/")[1]) if "/" in scope else None
        account = settings.account if settings else None
    task = Task(unit_id="", attempt_id="", prompt="", cwd="", command=("true",))
    env = prepare_session(load_agent("command"), task, account, home.environ).env
    env = {variable: value for variable, value in env.items() if variable not in ("PACELINE_UNIT", "PACELINE_ATTEMPT")}
    return ExecRequest(command=command, env=env, scopes=scopes, reported=scope or own, provider=profile.provider)


def _print_wait(why: Deferred) -> None:
    again = f", again {relative(why.retry_at - time.time())}" if why.retry_at is not None else ""
    sys.stderr.write(f"paceline: waits: {one_line(why.detail)}{again}\n")
    sys.stderr.flush()


def _run_once(request: ExecRequest, slot: ProcessSlot) -> tuple[int, list[AnySignal], bool]:
    """Return the exit code, the limit signals in the output, and whether the command ended at a limit."""
    reader = StreamReader(request.provider, tz=local_zone().key)
    signals: list[AnySignal] = []

    def on_output(channel: Channel, piece: bytes) -> None:
        signals.extend(_limit_signals(reader.feed(piece, channel=channel, seen_at=time.time())))

    run = run_in_terminal if sys.stdin.isatty() and sys.stdout.isatty() else run_in_pipes
    code = run(request.command, request.env, on_output, slot.serve)
    signals += _limit_signals(reader.close(exit_code=code, seen_at=time.time()))
    return code, signals, code != 0 and reader.outcome in LIMITS


def _limit_signals(found: Sequence[object]) -> list[AnySignal]:
    """Return the signals that the Governor acts on."""
    kinds = (RateLimited, Overloaded, QuotaClosed, PlatformLimit, BillingStop, AuthFailed)
    return [each for each in found if isinstance(each, kinds)]
