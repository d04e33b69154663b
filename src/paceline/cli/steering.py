"""`pause`, `resume`, `cancel`, `retry`, `pool`, `limit`, `cooldown`, `restore`: left in the store for the engine.

Everything is checked here first, so that the engine is never told what it cannot do.
"""

import time
from collections.abc import Iterable

import msgspec

from paceline.cli.names import find_campaign
from paceline.cli.printing import print_value, say
from paceline.cli.wiring import Home
from paceline.core.checks import check_limit
from paceline.core.scopes import RUNS, SESSIONS, ScopePattern, is_provider_scope
from paceline.engine import control
from paceline.errors import IllegalStep, InvalidInput, InvalidLimit, UnknownName
from paceline.settings import parse_duration
from paceline.settings.documents import did_you_mean
from paceline.store import Campaign

CAMPAIGN = "campaign:"
DEFAULT = "default"
NONE = "none"


# -- campaigns -----------------------------------------------------------------------------------


def pause_campaigns(home: Home, names: list[str], *, everything: bool, as_json: bool) -> None:
    changed = _set_state(home, _chosen(home, names, everything=everything), "paused")
    told = _named("paused", changed, "sessions that run go on to their end; nothing new starts")
    _tell(home, told, as_json, campaigns=changed, state="paused")


def resume_campaigns(home: Home, names: list[str], *, everything: bool, as_json: bool) -> None:
    changed = _set_state(home, _chosen(home, names, everything=everything), "active")
    _tell(home, _named("resumed", changed, "units start as there is room"), as_json, campaigns=changed, state="active")


def _named(what: str, changed: list[str], detail: str) -> str:
    return f"{what} {', '.join(changed)}: {detail}" if changed else f"nothing had to be {what}"


def _chosen(home: Home, names: list[str], *, everything: bool) -> list[Campaign]:
    if everything == bool(names):
        raise InvalidInput("name the campaigns, or say --all")
    if everything:
        return [campaign for campaign in home.store.campaigns() if campaign.state != "cancelled"]
    return [_not_cancelled(find_campaign(home.store, name)) for name in names]


def _not_cancelled(campaign: Campaign) -> Campaign:
    if campaign.state == "cancelled":
        raise IllegalStep(f"{campaign.name} is cancelled, which is for good; add its plan under another name")
    return campaign


def _set_state(home: Home, campaigns: list[Campaign], state: str) -> list[str]:
    changed = [campaign for campaign in campaigns if campaign.state != state]
    for campaign in changed:
        home.store.set_campaign(msgspec.convert({**msgspec.to_builtins(campaign), "state": state}, Campaign))
    if changed:
        control.send(home.store, "campaigns", now=time.time())
    return [campaign.name for campaign in changed]


def cancel_campaign(home: Home, name: str, *, as_json: bool) -> None:
    """Nothing more of it starts, and what runs is ended: by the engine, or here where there is none."""
    campaign = find_campaign(home.store, name)
    counts = home.store.counts()[name]
    running = home.store.cancel_units(campaign.name, now=time.time())
    _set_state(home, [campaign], "cancelled")
    if home.engine_leader() is None:
        end_sessions(home, running)
    count = counts.todo + counts.running + counts.held + counts.quarantined
    told = f"cancelled {name}: {count} units, of which {len(running)} ran and are being ended"
    _tell(home, told, as_json, note=False, campaigns=[name], cancelled=count, running=running)


def end_sessions(home: Home, unit_ids: Iterable[str]) -> None:
    executor = home.executor()
    try:
        for unit_id in unit_ids:
            unit = home.store.unit(unit_id)
            handle = executor.adopt(unit.attempt) if unit is not None and unit.attempt is not None else None
            if handle is not None:
                executor.stop(handle)
    finally:
        executor.close()


def retry_campaign(home: Home, name: str, *, as_json: bool) -> None:
    campaign = _not_cancelled(find_campaign(home.store, name))
    count = home.store.retry_units(campaign.name)
    control.send(home.store, "campaigns", now=time.time())
    units = "1 unit waits" if count == 1 else f"{count} units wait"
    told = f"{name}: {units} to be tried again" if count else f"{name}: no unit is held or quarantined"
    _tell(home, told, as_json, note=bool(count), campaign=name, retried=count)


# -- capacity ------------------------------------------------------------------------------------


def set_pool(home: Home, size: str, *, as_json: bool) -> None:
    limit = parse_limit(size)
    control.send(home.store, "limit", now=time.time(), scope=SESSIONS, limit=limit)
    told = f"the pool is {_count(limit)} sessions; what runs is never ended for it"
    _tell(home, told, as_json, scope=SESSIONS, limit=limit)


def set_limit(home: Home, scope: str, text: str, *, as_json: bool) -> None:
    """A number, none, or the value of the file again. What was learnt of the scope is forgotten."""
    scope = ScopePattern(scope).text
    if text.lower() == DEFAULT:
        control.send(home.store, "reset", now=time.time(), scope=scope)
        _tell(home, f"{scope} has the limit of the settings again", as_json, scope=scope, limit=DEFAULT)
        return
    limit = parse_limit(text)
    if scope.startswith(CAMPAIGN):
        campaign = find_campaign(home.store, scope.removeprefix(CAMPAIGN))
        home.store.set_campaign(msgspec.structs.replace(campaign, max_sessions=limit))
        control.send(home.store, "campaigns", now=time.time())
    else:
        control.send(home.store, "limit", now=time.time(), scope=scope, limit=limit)
    _tell(home, f"the limit of {scope} is {_count(limit)}", as_json, scope=scope, limit=limit)


def set_cooldown(home: Home, scope: str, text: str, *, as_json: bool) -> None:
    scope = ScopePattern(scope).text
    if not is_provider_scope(scope):
        raise InvalidInput(f"{scope} has no cooldown: only what a provider counts has one, such as anthropic/max-1")
    seconds = 0.0 if text.strip() == "0" else parse_duration(text, "cooldown")
    control.send(home.store, "cooldown", now=time.time(), scope=scope, seconds=seconds)
    _tell(home, f"a released slot of {scope} counts {seconds:g} s more", as_json, scope=scope, seconds=seconds)


def restore_scope(home: Home, scope: str, *, as_json: bool) -> None:
    """Forget what was learnt, and lift a hold."""
    scope = ScopePattern(scope).text
    _check_known(home, scope)
    now = time.time()
    control.send(home.store, "restore", now=now, scope=scope)
    if ScopePattern(scope).is_exact:
        control.send(home.store, "lift", now=now, scope=scope)
    _tell(home, f"{scope} is back at its configured limit, and nothing holds it", as_json, scope=scope)


def _check_known(home: Home, scope: str) -> None:
    """A name that nothing stands behind is a slip of the pen."""
    accounts = home.settings.accounts.values()
    known = {SESSIONS, RUNS, *home.settings.limits, *(each.provider for each in accounts)}
    known |= {account.scope for account in accounts}
    known |= {limit.partition("/")[0] for limit in home.settings.limits}
    campaigns = home.store.campaigns()
    known |= {f"{CAMPAIGN}{each.name}" for each in campaigns} | {f"agent:{each.agent}" for each in campaigns}
    is_model_known = scope.count("/") == 2 and scope.rpartition("/")[0] in known
    if scope not in known and not is_model_known and ScopePattern(scope).is_exact:
        hint = did_you_mean(scope, known) or "; `paceline limits` lists them"
        raise UnknownName(f"there is no scope {scope!r:.80}{hint}")


def parse_limit(text: str) -> int | None:
    if text.lower() == NONE:
        return None
    try:
        return check_limit(int(text))
    except ValueError:
        raise InvalidLimit(f"{text!r:.40} is no limit: a whole number of 1 or more, or none") from None


def _count(limit: int | None) -> str:
    return NONE if limit is None else str(limit)


def _tell(home: Home, message: str, as_json: bool, *, note: bool = True, **values: object) -> None:
    is_running = home.engine_leader() is not None
    if as_json:
        print_value({"ok": True, **values, "engine": "leading" if is_running else "stopped"})
        return
    say(message)
    if note and not is_running:
        say("No engine runs now: it takes effect when one starts (paceline run PLAN).", style="dim")
