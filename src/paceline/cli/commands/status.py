"""`status`: the engine, the pool and every scope that needs attention, as they are now."""

import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from rich.text import Text

from paceline.cli.call_text import account_notes, budget_text, call_counts_text, failure_text
from paceline.cli.limit_text import condition_text, limit_text
from paceline.cli.live_state import read_accounts, read_keys, read_live
from paceline.cli.options import AsJson
from paceline.cli.output import one_line, out, print_value
from paceline.cli.time_text import moment
from paceline.cli.wiring import Home, open_home
from paceline.views.accounts import AccountView
from paceline.views.capacity import capacity_rows
from paceline.views.fleet import FleetState
from paceline.views.gateway_calls import GatewayCounts, MemberFailure
from paceline.views.status import StatusSummary, read_status_summary


class StatusReport(StatusSummary, frozen=True, kw_only=True):
    """What `status` prints: the status, the accounts of pools whose calls fail, and all accounts."""

    failures: Sequence[MemberFailure]
    accounts: Sequence[AccountView]


def command(as_json: AsJson = False) -> None:
    """Show whether an engine runs, how full the pool is, and when the next parked unit resumes."""
    with open_home() as home:
        live = read_live(home)
        fleet = home.read_fleet(time.time(), scopes=live.scopes)
        status = read_status_summary(fleet, home.leader_process(), live.counts)
        report = StatusReport(
            **msgspec.structs.asdict(status), failures=live.failures, accounts=read_accounts(home, fleet)
        )
        if as_json:
            print_value(report)
            return
        _print_status(report, fleet, home)


def _print_status(status: StatusReport, fleet: FleetState, home: Home) -> None:
    engine, pool, now = status.engine, status.pool, fleet.now
    if engine.since is not None:
        where = f"process {engine.pid}" if engine.host is UNSET else f"process {engine.pid} on {engine.host}"
        _print_fact("engine", f"{engine.state}, {where}, since {moment(engine.since, now, home.zone)}")
    else:
        _print_fact("engine", "not running; `paceline run PLAN` starts it")
    sessions = f"{pool.running} of {limit_text(pool.sessions)} sessions running"
    _print_fact("pool", f"{sessions}, {pool.waiting} units waiting, {pool.parked} parked")
    units = msgspec.structs.asdict(status.units)
    _print_fact("units", ", ".join(f"{count} {state}" for state, count in units.items() if count) or "none")
    if status.gateway is None or status.gateway != GatewayCounts():
        _print_fact("gateway", call_counts_text(status.gateway))
    for failure in status.failures:
        _print_fact(failure.scope, failure_text(failure, now, home.zone))
    for key in read_keys(home, now).keys:
        if key.is_reached:
            _print_fact(f"key:{key.name}", f"its budget: {budget_text(key, now, home.zone)}")
    for account in status.accounts:
        for note in account_notes(account, now, home.zone):
            _print_fact(account.scope, note)
    if status.next_resume_at is not None:
        _print_fact("next resume", moment(status.next_resume_at, now, home.zone))
    for campaign in fleet.campaigns:
        if campaign.pause_reason is not None:
            hint = f"fix the cause, then `paceline resume {campaign.name}`"
            _print_fact(campaign.name, f"paused itself: {campaign.pause_reason}; {hint}")
    for row in capacity_rows(fleet):
        if condition := condition_text(row, now):
            _print_fact(row.scope, condition)
    _print_fact("home", str(home.path))


def _print_fact(name: str, value: str) -> None:
    out().print(Text.assemble((f"{name:<14} ", "dim"), one_line(value, 300)))
