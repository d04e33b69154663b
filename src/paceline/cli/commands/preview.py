"""`preview PLAN`: the units that would start now, and what holds the others. Starts nothing, stores nothing."""

import os
import time
from collections import Counter

import msgspec

from paceline.agents.account import login_text
from paceline.cli.control import counted
from paceline.cli.options import AsJson, PlanFile
from paceline.cli.output import one_line, print_value, say
from paceline.cli.plan_input import read_checked_plan
from paceline.cli.time_text import relative
from paceline.cli.wiring import Home, open_home
from paceline.core import Deferred, Granted
from paceline.engine.deadline_pacer import DeadlinePacer
from paceline.engine.offline_state import OfflineState
from paceline.engine.ticket_queues import split_queue_name
from paceline.plans.payer_check import check_payers
from paceline.plans.plan_file import Plan
from paceline.plans.readiness import campaign_advice, hold_advice, login_advice
from paceline.store import Campaign, Unit, UnitCounts
from paceline.views.units import iter_units

MOST_NAMED = 20
"""More ids scroll the summary off the screen."""
MOST_ROUNDS = 1000
"""A guard against a loop without end; a pass grants as many as there is room for."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """`starts` are unit ids in the order in which they would start; `waits` is what holds the others.

    `on` and `waits` are by login: an account, or `ACCOUNT#HOST` on another host.
    """

    campaign: str
    units: int
    starts: list[str]
    on: dict[str, int]
    waits: dict[str, Deferred]
    waiting: int
    parked: int
    running: int
    finished: int
    warnings: list[str] = []
    """What would spoil the night: permissions, model names, held accounts, logins that end soon."""
    withheld: list[str] = []
    """Names of variables that its sessions do not inherit."""
    billing: list[str] = []
    """What in the CLI's own configuration would bill a key: units would be held for it."""


def command(plan: PlanFile, as_json: AsJson = False) -> None:
    """Show which units of a plan would start now, and what holds the others. Starts nothing, stores nothing."""
    with open_home() as home:
        now = time.time()
        checked = read_checked_plan(home, plan)
        preview = make_preview(home, checked, now)
        preview = msgspec.structs.replace(preview, warnings=_warnings(home, checked, now))
        if as_json:
            print_value(preview)
            return
        _print_preview(preview, now)


def make_preview(home: Home, plan: Plan, now: float) -> Preview:
    campaign = plan.campaign
    stored = {unit.spec.id: unit for unit in _stored_units(home, campaign.name)}
    states = [stored.get(each.id) for each in plan.units]
    fresh = [f"{campaign.name}/{spec.id}" for spec, unit in zip(plan.units, states, strict=True) if _may_go(unit, now)]
    offline = home.offline_state(now, extra=[_as_stored(home, plan)])
    running = sum(unit is not None and unit.state == "running" for unit in states)
    counts = home.store.counts() | {campaign.name: UnitCounts(todo=len(fresh), running=running)}
    known = {each.name for each in home.store.campaigns()}  # the pace of a new campaign is not known yet
    dated = [each for each in offline.campaigns.values() if each.name in known]
    DeadlinePacer(home.store, offline.governor, offline.accounts).set_paces(dated, now, counts)
    granted = _dispatch(home, offline, campaign.name, len(fresh), now)
    count = sum(granted.values())
    lines = [(*split_queue_name(line), why) for line, why in offline.queues.why(now).items()]
    payers = check_payers(campaign, [unit.cwd for unit in plan.units], home.settings, home.environ)
    return Preview(
        campaign=campaign.name,
        units=len(plan.units),
        starts=fresh[:count],
        on=dict(granted),
        waits={login: why for name, login, why in lines if name == campaign.name},
        waiting=max(0, len(fresh) - count),
        parked=sum(unit is not None and _is_parked(unit, now) for unit in states),
        running=running,
        finished=sum(unit is not None and unit.state not in ("todo", "running") for unit in states),
        withheld=payers.withheld,
        billing=payers.billing,
    )


def _warnings(home: Home, plan: Plan, now: float) -> list[str]:
    """Return what would keep the agents from their work on each account and in each folder."""
    settings, campaign = home.settings, plan.campaign
    accounts = settings.campaign_accounts(campaign.agent, campaign.accounts)
    governor = home.offline_state(now).governor
    found = [*campaign_advice(campaign, plan.units, settings, os.environ)]
    for account in accounts:
        found += login_advice(account, os.environ, now)
        found += hold_advice(account, governor.status(account.scope, now=now))
    return [str(advice) for advice in found]


def _stored_units(home: Home, name: str) -> list[Unit]:
    known = any(campaign.name == name for campaign in home.store.campaigns())
    return list(iter_units(home.store, campaign=name, most=1 << 60)) if known else []


def _as_stored(home: Home, plan: Plan) -> Campaign:
    """Return the campaign in its stored state: adding a plan again does not resume a paused campaign."""
    states = {campaign.name: campaign.state for campaign in home.store.campaigns()}
    return msgspec.structs.replace(plan.campaign, state=states.get(plan.campaign.name, "active"))


def _may_go(unit: Unit | None, now: float) -> bool:
    return unit is None or (unit.state == "todo" and not _is_parked(unit, now))


def _is_parked(unit: Unit, now: float) -> bool:
    return unit.state == "todo" and unit.resume_at is not None and unit.resume_at > now


def _dispatch(home: Home, offline: OfflineState, name: str, units: int, now: float) -> Counter[str]:
    """Grant on the temporary Governor, pass after pass, until nothing more is granted. Returns counts by login."""
    claimable = dict(home.store.claimable())
    bound = sum(count for (campaign, account), count in claimable.items() if campaign == name and account is not None)
    claimable[name, None] = max(0, units - bound)
    granted: Counter[str] = Counter()
    for _ in range(MOST_ROUNDS):
        offline.queues.fill(offline.campaigns.values(), claimable, now)
        grants = [effect for effect in offline.governor.advance(now=now) if isinstance(effect, Granted)]
        if not grants:
            break
        for grant in grants:
            queue = offline.queues.queue_of(grant.ticket_id)
            offline.queues.take(grant.ticket_id)
            campaign, login = queue.campaign.name, queue.login
            key = (campaign, login) if claimable.get((campaign, login)) else (campaign, None)
            if not claimable.get(key):
                offline.governor.abandon(grant.ticket_id, now=now)
                continue
            claimable[key] -= 1
            if campaign == name:
                granted[login] += 1
    return granted


def _print_preview(preview: Preview, now: float) -> None:
    say(f"{preview.campaign}: {counted(preview.units, 'unit')}; nothing is started or stored by this")
    for warning in preview.warnings:
        say(f"  warning: {one_line(warning, 400)}")
    _print_starts(preview)
    for login, why in preview.waits.items():
        where = f" on {login_text(login)}" if login else ""
        until = f", again {relative(why.retry_at - now)}" if why.retry_at is not None else ""
        say(f"  {preview.waiting} would wait{where}: {why.detail}{until}")
    for count, what in ((preview.parked, "parked"), (preview.running, "running"), (preview.finished, "finished")):
        if count:
            say(f"  {count} {what} already")
    for finding in preview.billing:
        say(f"  would be held, as it bills a key: {one_line(finding, 300)}")
    if preview.withheld:
        names = one_line(", ".join(preview.withheld), 600)
        say(f"  not passed to its sessions: {names} (env_pass passes a variable on)")


def _print_starts(preview: Preview) -> None:
    on = ", ".join(f"{count} on {login_text(login)}" for login, count in preview.on.items() if login)
    say(f"  {len(preview.starts)} would start now{f' ({on})' if on else ''}")
    for unit_id in preview.starts[:MOST_NAMED]:
        say(f"    {one_line(unit_id, 100)}")
    if len(preview.starts) > MOST_NAMED:
        say(f"    … and {len(preview.starts) - MOST_NAMED} more")
