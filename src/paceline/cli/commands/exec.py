"""`exec -- CMD`: any command inside a slot. A command that ends at a limit waits and runs again."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from paceline.agents import Account, AgentProfile, PreparedSession, launch, load_agent
from paceline.agents.billing_check import refuse_billing
from paceline.cli.main import INTERRUPTED
from paceline.cli.output import argument, complete_scope, flag, one_line, option, wait_words
from paceline.core import Deferred, Ticket
from paceline.core.signals import (
    AnySignal,
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Unreachable,
)
from paceline.core.values.scopes import RUNS, SESSIONS, canonical_scope, path_scopes
from paceline.core.values.session_output import Channel
from paceline.daemon.home import Home, open_home
from paceline.daemon.slot_engine import SlotEngineStarter
from paceline.daemon.times import local_zone, relative
from paceline.detect import StreamReader
from paceline.engine.capacity.external_slots import ProgramSlot, enclosing_ticket
from paceline.engine.session.live_session import counted_signals
from paceline.errors import UnknownName
from paceline.executors.command_runner import run_in_pipes, run_in_terminal
from paceline.settings.checks import did_you_mean

CONTEXT_SETTINGS = {"ignore_unknown_options": True}
"""Options after the command's name belong to it."""

NOT_FOUND = 127
"""The exit code of a shell for a program that is not on the PATH."""
ATTEMPT_VARIABLE = "PACELINE_ATTEMPT"
LIMITS = ("quota_window", "rate_limit", "overloaded")
"""Outcomes that say nothing about the command's own work: the command is run again."""
UNREACHABLE = "unreachable"
"""The outcome of an agent that reached nobody. It is run again too; where a plain program connects to is its own."""
METERED_MODES = ("api_key", "overage")
"""What an agent may say of its payer that is not its subscription."""


FIRST_WAIT_SECONDS = 30.0
"""The wait of a plain program after a limit that names no time: the default pause of a scope."""
LONGEST_WAIT_SECONDS = 300.0
"""Such waits double up to this, like the pauses of an overloaded provider."""


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, which scopes it occupies, and how its output is read."""

    command: tuple[str, ...]
    env: dict[str, str]
    scopes: tuple[str, ...]
    reported: str | None
    """The scope that its limit signals are reported for; None for a plain program, whose limits are its own."""
    provider: str
    parent: str | None = None
    """The ticket of the session, or of the outer `exec`, that it runs in."""
    has_payer: bool = False
    withheld: tuple[str, ...] = ()
    """The names of variables that it does not inherit."""
    is_never_metered: bool = False
    """Whether it is stopped as soon as its output says that it bills a key."""


def exec_command(
    command: Annotated[list[str], argument("-- CMD...", "The command and its arguments.")],
    scope: Annotated[
        str | None, option("SCOPE", "What it occupies: provider/account/model, or less.", autocompletion=complete_scope)
    ] = None,
    agent: Annotated[
        str | None, option("AGENT", "The agent whose output it prints.", show_default="by its name")
    ] = None,
    priority: Annotated[int, option(None, "A higher priority goes first.")] = 0,
    env_pass: Annotated[
        list[str] | None, option("NAME", "A variable, or pattern, that is not withheld. Repeatable.")
    ] = None,
    allow_metered: Annotated[bool, flag("Let an agent bill an API key.", "--allow-metered")] = False,
) -> None:
    """Run any command inside a slot, sharing the limits with everything else on this machine.

    It waits until there is room. If the command ends at a rate limit or a spent window, or is an agent that reaches
    nobody, it waits and is run again. The exit code is the command's own.

    [bold]paceline exec --scope anthropic/max-1/opus-4-6 -- claude -p "Tidy the docs"[/bold]
    """
    with open_home() as home:
        rules = launch.EnvironmentRules(
            env_pass=tuple(env_pass or ()), allow_metered=allow_metered, key_variables=home.settings.key_variables
        )
        request = _read_request(home, tuple(command), scope, agent, rules)
        raise typer.Exit(_run_until_done(home, request, priority))


def _run_until_done(home: Home, request: ExecRequest, priority: int) -> int:
    """Run the command until it ends for another reason than a limit, and return its exit code."""
    program = request.command[0]
    if shutil.which(program, path=request.env.get("PATH")) is None:
        _note(f"{one_line(program)} is not a program on your PATH")
        return NOT_FOUND
    home.offline_state(time.time()).governor.check(Ticket("check", request.scopes, priority=priority))
    slot = ProgramSlot(home.store, ensure_engine=SlotEngineStarter(home).ensure)
    tries = 0
    try:
        while True:
            slot.acquire(request.scopes, priority, _note_wait, request.parent)
            code, signals, outcome = _run_once(request, slot)
            for each in signals if request.reported is not None else ():
                slot.report(request.reported or "", each)
            slot.release()
            if outcome is None:
                if code != 0 and request.withheld:  # that may be why it failed
                    names = one_line(", ".join(request.withheld), 300)
                    _note(f"not passed on: {names} (--env-pass NAME passes a variable on)")
                return code
            tries += 1
            _wait_after_limit(request, signals, outcome, tries)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        slot.release()


def _wait_after_limit(request: ExecRequest, signals: Sequence[AnySignal], outcome: str, tries: int) -> None:
    """Wait here after a limit of a plain program. Otherwise its scope is paused or closed, and its next slot waits."""
    program = one_line(request.command[0], 60)
    if request.reported is not None:
        what = "reached nobody" if outcome == UNREACHABLE else "met a limit"
        _note(f"{program} {what}; it runs again when there is room")
        return
    now = time.time()
    until = max((at for each in signals if (at := _ends_at(each, now)) is not None and at > now), default=None)
    if until is None:
        until = now + min(FIRST_WAIT_SECONDS * 2.0 ** (tries - 1), LONGEST_WAIT_SECONDS)
    _note(f"{program} met a limit; it runs again {relative(until - now)}")
    time.sleep(max(0.0, until - time.time()))


def _ends_at(found: AnySignal, now: float) -> float | None:
    """Return when the limit that a signal names is over."""
    match found:
        case QuotaClosed():
            return found.resets_at
        case RateLimited() | Overloaded():
            return None if found.retry_after is None else now + found.retry_after
    return None


def _read_request(
    home: Home, command: tuple[str, ...], scope: str | None, agent: str | None, rules: launch.EnvironmentRules
) -> ExecRequest:
    """Return the checked request. Without `agent` the name of the program decides which agent it is."""
    program = os.path.basename(command[0])
    known = home.settings.agent_names()
    if agent is not None and agent not in known:
        raise UnknownName(f"there is no agent {agent!r:.60}{did_you_mean(agent, known)}")
    name = agent or (program if program in known else None)
    profile = home.settings.agent(name) if name else load_agent("command")
    attempt = _session_ticket(home)
    parent = attempt or enclosing_ticket(home.store, os.getpid())
    own = (SESSIONS, canonical_scope(f"agent:{name or program}")) if parent is None else (RUNS,)
    account = home.settings.login(name) if name and scope is None else None
    path: tuple[str, ...] = ()
    if scope is not None:
        path = path_scopes(home.settings.login_scope(scope))
        account = home.settings.account_at(path[-1]) if "/" in scope else None
    elif account is not None:
        path = path_scopes("/".join(filter(None, (account.scope, _model_of(command, profile)))))
    environment = _environment(home, command, profile, account, rules, is_inside=attempt is not None and scope is None)
    return ExecRequest(
        command=command,
        env=environment.env,
        withheld=environment.withheld,
        scopes=own + path,
        reported=path[-1] if path else None,
        provider=profile.provider,
        parent=parent,
        has_payer=account is not None or bool(profile.start),
        is_never_metered=attempt is None and not launch.may_bill(account, rules),
    )


def _model_of(command: tuple[str, ...], profile: AgentProfile) -> str | None:
    """Return the model that the command line chooses, as the agent's own flag names it."""
    flags = {"--model", *(part for part in profile.model if part.startswith("-"))}
    for each, following in zip(command, (*command[1:], ""), strict=True):
        name, _, value = each.partition("=")
        if name in flags and (value or following):
            return value or following
    return None


def _session_ticket(home: Home) -> str | None:
    """Return the ticket of the session that this process runs in: the attempt of a running unit."""
    attempt = home.environ.get(ATTEMPT_VARIABLE)
    is_running = attempt and any(unit.attempt_id == attempt for unit in home.store.running_units())
    return attempt if is_running else None


def _environment(
    home: Home,
    command: tuple[str, ...],
    profile: AgentProfile,
    account: Account | None,
    rules: launch.EnvironmentRules,
    *,
    is_inside: bool,
) -> launch.SessionEnvironment:
    """Return the environment of the command: that of a session for an agent or an account, else the person's own.

    Inside a session it stays that of the session, which is clean already. Raises `WouldBillKey` for an agent that is
    set up to bill a key.
    """
    if is_inside:
        return launch.SessionEnvironment(env=home.environ)
    if account is None and not profile.start:
        found = launch.program_environment(home.environ, rules)
    else:
        as_typed = msgspec.structs.replace(profile, environment={})  # a person's own command keeps its own retries
        found = launch.session_environment(as_typed, account, home.environ, rules)
        session = PreparedSession(argv=command, env=found.env, cwd=os.getcwd())
        refuse_billing(profile, account, session, rules)
    return found


def _note_wait(why: Deferred) -> None:
    _note(f"waits: {wait_words(why.detail, why.retry_at, time.time())}")


def _note(text: str) -> None:
    """Print beside the output of the command, which has stdout."""
    sys.stderr.write(f"paceline: {text}\n")
    sys.stderr.flush()


def _run_once(request: ExecRequest, slot: ProgramSlot) -> tuple[int, Sequence[AnySignal], str | None]:
    """Run the command and read its output.

    Returns its exit code, its limit signals, and the limit that it ended at, or `unreachable`; None if it ended for
    another reason.
    """
    reader = StreamReader(request.provider, tz=local_zone().key)
    signals: list[Signal] = []
    stopped: list[BillingStop] = []

    def on_output(channel: Channel, piece: bytes) -> None:
        signals.extend(reader.feed(piece, channel=channel, seen_at=time.time()))
        if request.is_never_metered and reader.auth_mode in METERED_MODES and not stopped:
            stopped.append(BillingStop(detail=f"{one_line(request.command[0], 60)} bills a key, not the subscription"))
            _note(f"stopped: {stopped[0].detail}; --allow-metered accepts it")
            signal.raise_signal(signal.SIGTERM)  # the runner passes it on to the command

    run = run_in_terminal if sys.stdin.isatty() and sys.stdout.isatty() else run_in_pipes
    code = run(request.command, request.env, on_output, slot.show_life)
    signals += reader.close(exit_code=code, seen_at=time.time())
    counted = [
        each
        for each in counted_signals(signals, has_payer=request.has_payer)
        if isinstance(each, RateLimited | Overloaded | QuotaClosed | PlatformLimit | BillingStop | AuthFailed)
    ]
    outcome = None if code == 0 or stopped else reader.outcome
    if outcome == UNREACHABLE and request.reported is not None and request.has_payer:
        unreachable = Unreachable(detail=reader.failure_text or "")
        return code, [*counted, unreachable], UNREACHABLE
    return code, [*counted, *stopped], outcome if outcome in LIMITS else None
