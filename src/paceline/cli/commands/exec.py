"""`exec -- CMD`: any command inside a slot; where it meets a limit, wait and run it again."""

import os
import shutil
import sys
import time
from collections.abc import Sequence

import msgspec

from paceline.agents import Account, Task, load_agent, prepare_session
from paceline.cli.inputs import local_zone
from paceline.cli.output import INTERRUPTED, one_line
from paceline.cli.signal_text import relative
from paceline.cli.wiring import Home
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
from paceline.engine.external_slots.standalone_host import SlotDesk
from paceline.errors import InvalidInput, UnknownName
from paceline.executors.command_runner import run_in_pipes, run_in_terminal

NOT_FOUND = 127
LIMITS = ("quota_window", "rate_limit", "overloaded")
"""Outcomes that say nothing about the command's own work: it is run again."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, what it occupies, and how its output is read."""

    command: tuple[str, ...]
    env: dict[str, str]
    scopes: tuple[str, ...]
    reported: str
    provider: str


def execute(home: Home, command: Sequence[str], *, scope: str | None, agent: str | None, priority: int) -> int:
    """The exit code of the command."""
    order = _order(home, tuple(command), scope, agent)
    if shutil.which(command[0], path=order.env.get("PATH")) is None:
        sys.stderr.write(f"paceline: {one_line(command[0])} is not a program on your PATH\n")
        return NOT_FOUND
    desk = SlotDesk(home, order.scopes, priority)
    try:
        while True:
            desk.acquire(_tell_wait)
            code, signals, is_limited = _run_once(order, desk)
            for each in signals:
                desk.report(order.reported, each)
            desk.release()
            if not is_limited:
                return code
            sys.stderr.write(f"paceline: {one_line(command[0], 60)} met a limit; it is run again when there is room\n")
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        desk.close()


def _order(home: Home, command: tuple[str, ...], scope: str | None, agent: str | None) -> Order:
    """An agent is known by the name of its program unless it is named."""
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
            raise InvalidInput(f"{scope} is no provider path; write provider, provider/account or more")
        scopes += path_scopes(scope)
        settings = home.settings.accounts.get(scope.split("/")[1]) if "/" in scope else None
        account = settings.account if settings else None
    task = Task(unit_id="", attempt_id="", prompt="", cwd="", command=("true",))
    env = prepare_session(load_agent("command"), task, account, home.environ).env
    env = {variable: value for variable, value in env.items() if variable not in ("PACELINE_UNIT", "PACELINE_ATTEMPT")}
    return Order(command=command, env=env, scopes=scopes, reported=scope or own, provider=profile.provider)


def _tell_wait(why: Deferred) -> None:
    again = f", again {relative(why.retry_at - time.time())}" if why.retry_at is not None else ""
    sys.stderr.write(f"paceline: waits: {one_line(why.detail)}{again}\n")
    sys.stderr.flush()


def _run_once(order: Order, desk: SlotDesk) -> tuple[int, list[AnySignal], bool]:
    """Its exit code, what it said of limits, and whether it ended at one."""
    reader = StreamReader(order.provider, tz=local_zone().key)
    signals: list[AnySignal] = []

    def on_output(channel: Channel, piece: bytes) -> None:
        signals.extend(_limit_signals(reader.feed(piece, channel=channel, seen_at=time.time())))

    run = run_in_terminal if sys.stdin.isatty() and sys.stdout.isatty() else run_in_pipes
    code = run(order.command, order.env, on_output, desk.serve)
    signals += _limit_signals(reader.close(exit_code=code, seen_at=time.time()))
    return code, signals, code != 0 and reader.outcome in LIMITS


def _limit_signals(found: Sequence[object]) -> list[AnySignal]:
    """Those that the Governor acts on."""
    kinds = (RateLimited, Overloaded, QuotaClosed, PlatformLimit, BillingStop, AuthFailed)
    return [each for each in found if isinstance(each, kinds)]
