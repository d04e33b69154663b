"""What of a plan would start now, and what holds the rest: the dispatch of the engine itself, on a Governor for it.

Starts nothing, stores nothing. Never here: printing.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from paceline.core import Deferred, Granted
from paceline.engine.capacity.deadline_pacer import DeadlinePacer
from paceline.engine.capacity.governor_state import OfflineState
from paceline.engine.dispatch.ticket_queues import split_queue_name
from paceline.engine.settings import EngineSettings
from paceline.settings import LOCAL_HOST, Settings
from paceline.settings.plan_file import Plan
from paceline.settings.preflight import check_payers, hold_advice, missing_logins, plan_warnings
from paceline.store import Store, UnitCounts
from paceline.store.rules import STOPPED_STATES
from paceline.views.units import iter_units

NO_LOGIN = "no login"
"""What holds units whose account has no login here: the first of them would find that out."""
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
    stopped: int = 0
    """Units that are held, quarantined or unverified: a person must retry them."""
    warnings: list[str] = []
    """What would spoil the night: permissions, model names, held accounts, logins that end soon."""
    withheld: list[str] = []
    """Names of variables that its sessions do not inherit."""
    billing: list[str] = []
    """What in the CLI's own configuration would bill a key: units would be held for it."""


def preview_plan(
    plan: Plan, store: Store, settings: Settings, engine: EngineSettings, environ: Mapping[str, str], now: float
) -> Preview:
    """Return what would start now, and what holds the others."""
    name = plan.campaign.name
    stored = {campaign.name: campaign for campaign in store.campaigns()}
    of_campaign = iter_units(store, campaign=name, most=1 << 60) if name in stored else ()
    known = {unit.spec.id: unit for unit in of_campaign}
    units = [known.get(spec.id) for spec in plan.units]
    parked = {each.id for each in units if each is not None and each.state == "todo" and (each.resume_at or 0.0) > now}
    running = sum(each is not None and each.state == "running" for each in units)
    fresh = [
        f"{name}/{spec.id}"
        for spec, unit in zip(plan.units, units, strict=True)
        if unit is None or (unit.state == "todo" and unit.id not in parked)
    ]
    # Adding a plan again does not resume a paused campaign.
    campaign = msgspec.structs.replace(plan.campaign, state=stored[name].state if name in stored else "active")
    offline = OfflineState(store, engine, now, [campaign])
    counts = store.counts() | {name: UnitCounts(todo=len(fresh), running=running)}
    dated = [each for each in offline.campaigns.values() if each.name in stored]  # a new one has no pace yet
    DeadlinePacer(store, offline.governor, offline.accounts).set_paces(dated, now, counts)
    uses_hosts = not settings.hosts.keys() <= {LOCAL_HOST}  # there may be a login that is missing here
    without = {} if uses_hosts else missing_logins(plan.campaign, settings, environ)
    for scope in without:
        offline.governor.hold(scope, NO_LOGIN, now=now)
    granted = _dispatch(store, offline, name, len(fresh), now)
    count = sum(granted.values())
    waits: dict[str, Deferred] = {}
    for line, why in offline.queues.why(now).items():
        campaign_name, login = split_queue_name(line)
        if campaign_name == name:
            waits[login] = msgspec.structs.replace(why, detail=NO_LOGIN) if why.scope in without else why
    payers = check_payers(plan.campaign, [unit.cwd for unit in plan.units], settings, environ)
    return Preview(
        campaign=name,
        units=len(plan.units),
        starts=fresh[:count],
        on=dict(granted),
        waits=waits,
        waiting=max(0, len(fresh) - count),
        parked=len(parked),
        running=running,
        finished=sum(unit is not None and unit.state in ("done", "cancelled") for unit in units),
        stopped=sum(unit is not None and unit.state in STOPPED_STATES for unit in units),
        warnings=_warnings(plan, store, settings, engine, environ, now),
        withheld=payers.withheld,
        billing=payers.billing,
    )


def _warnings(
    plan: Plan, store: Store, settings: Settings, engine: EngineSettings, environ: Mapping[str, str], now: float
) -> list[str]:
    """Return what would keep the agents from their work on each account and in each folder."""
    governor = OfflineState(store, engine, now).governor
    accounts = settings.campaign_accounts(plan.campaign.agent, plan.campaign.accounts)
    holds = [each for account in accounts for each in hold_advice(account, governor.status(account.scope, now=now))]
    return plan_warnings(plan, settings, environ, now) + [str(advice) for advice in holds]


def _dispatch(store: Store, offline: OfflineState, name: str, units: int, now: float) -> Counter[str]:
    """Grant on the temporary Governor, pass after pass, until nothing more is granted. Returns counts by login."""
    claimable = dict(store.claimable())
    bound = sum(count for (campaign, account), count in claimable.items() if campaign == name and account is not None)
    claimable[name, None] = max(0, units - bound)
    granted: Counter[str] = Counter()
    for _ in range(MOST_ROUNDS):
        offline.queues.fill(offline.campaigns.values(), claimable, now)
        grants = [effect for effect in offline.governor.advance(now=now) if isinstance(effect, Granted)]
        if not grants:
            break
        for grant in grants:
            queue = offline.queues.by_ticket[grant.ticket_id]
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
