"""The commands of an operator: validated here, stored as events that the engine carries out, answered with values.

CLI and API both call these functions, so they refuse the same input with the same message. A command is stored in one
transaction. It takes effect when a leading engine reads it: `Engine.apply_commands` at once, else its next pass. A
client's key is stored with the limits of its scope `key:NAME`. Never here: printing, HTTP, or who presents a key
(`paceline.gateway.client_keys`).
"""

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from paceline.agents.account import split_login
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import KEY, RUNS, SESSIONS, ScopePattern, is_provider_scope, model_pattern
from paceline.core.values.settings import Cooldown, Rate, check_cooldown, check_rate
from paceline.core.values.validation import LARGEST_LIMIT, check_limit, check_weight
from paceline.engine import command_log
from paceline.engine.command_log import signature
from paceline.errors import IllegalStep, InvalidInput, InvalidLimit, UnknownName
from paceline.events import Event
from paceline.hosts.messages import known_hosts, save_hosts
from paceline.settings import HostSettings, Settings
from paceline.settings.checks import LARGEST_BUDGET, did_you_mean, nearest
from paceline.settings.plan_file import Plan, campaign_with_changes, import_in_steps
from paceline.store import Added, Campaign, ClientKey, HashedKey, KeyBudget, Store, Unit
from paceline.store.interface import CampaignState
from paceline.store.rules import ACCEPTED, STOPPED_STATES
from paceline.store.spend import BudgetPeriod, KeyRules

MOST_LISTED = 20
"""Names in the error message: enough to recognise the right one, few enough to read."""


def find_campaign(store: Store, name: str) -> Campaign:
    """Return the campaign of this name. Raises `UnknownName` with a suggestion, or the list of campaigns."""
    campaigns = {campaign.name: campaign for campaign in store.campaigns()}
    if name in campaigns:
        return campaigns[name]
    listed = f"; there are: {', '.join([*campaigns][:MOST_LISTED])}"
    listed = listed if campaigns else "; there are none yet: paceline run PLAN adds one"
    raise UnknownName(f"there is no campaign {name!r:.80}{did_you_mean(name, campaigns) or listed}")


def all_units(store: Store, *, campaign: str | None = None, state: UnitState | None = None) -> Iterator[Unit]:
    """Yield units page by page, so that a million of them need little memory."""
    cursor: str | None = None
    while True:
        page = store.units(campaign=campaign, state=state, cursor=cursor, limit=1000)
        yield from page.units
        cursor = page.cursor
        if cursor is None:
            return


_NUMBERS: Final = re.compile(r"\d+")


def reason_family(reason: str | None) -> str:
    """Return the reason without its numbers: units that stopped at different lines stopped for the same reason."""
    return _NUMBERS.sub("#", reason or "")


def units_like(store: Store, unit: Unit) -> list[str]:
    """Return the ids of the units of its campaign that stopped in the same state and for the same reason.

    A unit that has not stopped is like no other.
    """
    if unit.state not in STOPPED_STATES:
        return []
    family, like = reason_family(unit.reason), all_units(store, campaign=unit.campaign, state=unit.state)
    return [each.id for each in like if reason_family(each.reason) == family]


CAMPAIGN = "campaign:"
HOST = "host:"
Action = Literal["add", "pause", "resume", "cancel", "retry", "change", "delete", "accept", "limit"]
"""What a person or a program does to a campaign or a unit."""

MISSPELT_LIKENESS = 0.85
"""How similar a scope that nothing mentions must be to a known one to be taken for a typing error: a letter or two."""
PAUSED_UNIT = "paused by a person; `paceline resume` continues it"


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The number of cancelled units, and the ids of those that were running."""

    units: int
    running: tuple[str, ...]


# -- campaigns -----------------------------------------------------------------------------------


def add_plan(store: Store, plan: Plan, *, update: bool, now: float) -> Added:
    """Store a validated plan as a campaign, or as more units of one."""
    events = [command_log.event_of("campaigns", now=now, action="add", target=plan.campaign.name)]
    return store.add_campaign(plan.campaign, plan.units, update=update, now=now, events=events)


async def add_plan_in_steps(store: Store, plan: Plan, *, update: bool, now: float) -> Added:
    """Add a plan as `add_plan` does, without holding up the event loop."""
    events = [command_log.event_of("campaigns", now=now, action="add", target=plan.campaign.name)]
    return await import_in_steps(store, plan, update=update, now=now, events=events)


def check_not_cancelled(store: Store, name: str) -> None:
    """Raise `IllegalStep` if the campaign was cancelled: units cannot be added to it."""
    if any(campaign.name == name and campaign.state == "cancelled" for campaign in store.campaigns()):
        raise IllegalStep(f"{name} is cancelled, and nothing is added to it; `paceline retry {name}` undoes that")


def pause_campaigns(store: Store, names: Sequence[str] | None, *, at_turn: bool = False, now: float) -> list[str]:
    """Pause the named campaigns (all with units to run if None). Returns the names that changed.

    Their running sessions finish; with `at_turn` they end at their next turn and continue when the campaign does.
    """
    chosen, counts = _chosen(store, names), store.counts()
    if names is None:  # a finished one would only look as if it had work left
        chosen = [each for each in chosen if counts[each.name].todo or counts[each.name].running]
    paused = {campaign.name for campaign in chosen}
    with store.together():
        for unit in store.running_units() if at_turn else ():
            if unit.campaign in paused:
                end_at_turn(store, unit, reason="its campaign was paused", now=now)
        return _set_state(store, chosen, "paused", "pause", now)


def resume_campaigns(store: Store, names: Sequence[str] | None, *, now: float) -> list[str]:
    """Resume the named campaigns (all if None). Returns the names that changed."""
    return _set_state(store, _chosen(store, names), "active", "resume", now)


def cancel_campaign(store: Store, name: str, *, now: float) -> Cancelled:
    """Cancel every unit that is not done. The leading engine ends those that run."""
    campaign = find_campaign(store, name)
    counts = store.counts()[name]
    with store.together():
        running = store.cancel_units(campaign.name, now=now)
        _set_state(store, [campaign], "cancelled", "cancel", now)
    units = counts.todo + counts.running + counts.held + counts.quarantined + counts.unverified
    return Cancelled(units=units, running=tuple(running))


def retry_campaign(store: Store, name: str, *, now: float) -> int:
    """Move stopped units back to `todo`, and those of a cancelled campaign, which resumes. Returns how many moved."""
    campaign = find_campaign(store, name)
    with store.together():
        count = store.retry_units(campaign.name, also_cancelled=campaign.state == "cancelled")
        if campaign.state == "cancelled":
            store.set_campaign(msgspec.structs.replace(campaign, state="active"))
        _record(store, "retry", campaign.name, now)
    return count


def retry_units_like(store: Store, unit: Unit, *, now: float) -> int:
    """Move the units that `units_like` returns back to `todo`. Returns how many moved."""
    with store.together():
        count = store.retry_units(unit.campaign, units_like(store, unit))
        _record(store, "retry", unit.campaign, now)
    return count


def change_campaign(
    store: Store, settings: Settings, name: str, changes: Mapping[str, object], *, now: float
) -> Campaign:
    """Change fields of a campaign, named and validated as in a plan. None removes a field."""
    campaign = _not_cancelled(find_campaign(store, name))
    since = now if changes.get("deadline") is not None else 0.0
    changed = campaign_with_changes(campaign, changes, settings, now=since)
    if changed != campaign:
        _replace(store, [changed], "change", now)
    return changed


def delete_campaign(store: Store, name: str, *, now: float) -> None:
    """Delete a campaign with all its units. Refused while one of them runs."""
    campaign = find_campaign(store, name)
    with store.together():
        store.delete_campaign(campaign.name)
        _record(store, "delete", campaign.name, now)
        command_log.send(store, "reset", now=now, scope=f"{CAMPAIGN}{name}")


def _chosen(store: Store, names: Sequence[str] | None) -> list[Campaign]:
    if names is None:
        return [campaign for campaign in store.campaigns() if campaign.state != "cancelled"]
    return [_not_cancelled(find_campaign(store, name)) for name in names]


def _not_cancelled(campaign: Campaign) -> Campaign:
    if campaign.state == "cancelled":
        raise IllegalStep(f"{campaign.name} is cancelled; `paceline retry {campaign.name}` undoes that")
    return campaign


def _set_state(
    store: Store, campaigns: Iterable[Campaign], state: CampaignState, action: Action, now: float
) -> list[str]:
    changed = [campaign for campaign in campaigns if campaign.state != state]
    if changed:
        states = [msgspec.structs.replace(each, state=state, pause_reason=None) for each in changed]
        _replace(store, states, action, now)
    return [campaign.name for campaign in changed]


def _replace(store: Store, campaigns: Sequence[Campaign], action: Action, now: float) -> None:
    with store.together():
        for campaign in campaigns:
            store.set_campaign(campaign)
            _record(store, action, campaign.name, now)


def _record(store: Store, action: Action, target: str, now: float) -> None:
    """Store what was done to a campaign or unit, and by whom. Engines then read it again."""
    command_log.send(store, "campaigns", now=now, action=action, target=target)


# -- units ---------------------------------------------------------------------------------------


def end_at_turn(
    store: Store, unit: Unit, *, reason: str, resume_at: float | None = None, is_held: bool = False, now: float
) -> None:
    """Ask the leading engine to end the session of a running unit at its next turn, without a charge.

    Its conversation continues at `resume_at`, with its next slot if that is None, or with `is_held` when a person
    resumes it. A session that ends by itself before counts as usual, and so does one that shows no turns or cannot be
    resumed. A unit whose session has not begun waits at once. Work that is being checked has no session to end.
    """
    fields: dict[str, Any] = {"reason": reason, "resume_at": resume_at, "is_held": is_held}
    command_log.send(store, command_log.END_AT_TURN, now=now, unit=unit.id, attempt=unit.attempt_id, **fields)


def pause_unit(store: Store, unit: Unit, *, at_turn: bool = False, now: float) -> bool:
    """Hold a unit that waits; with `at_turn` also one that runs, at its next turn. Returns whether it changed."""
    if unit.state == "held" and unit.reason == PAUSED_UNIT:
        return False
    if at_turn and unit.state == "running":
        if unit.phase not in (None, "working"):
            raise IllegalStep(f"{unit.id} is {unit.phase}: its session is over, and its work is not interrupted")
        end_at_turn(store, unit, reason=PAUSED_UNIT, is_held=True, now=now)
        return True
    if unit.state != "todo":
        ways = f"; `paceline pause {unit.id} --at-turn` ends its session at its next turn, `cancel` at once"
        hint = ways if unit.state == "running" else ""
        raise IllegalStep(f"{unit.id} is {unit.state}: only a unit that waits can be paused{hint}")
    with store.together():
        store.move_units([unit.id], "held", PAUSED_UNIT, now=now)
        _record(store, "pause", unit.id, now)
    return True


def resume_unit(store: Store, unit: Unit, *, now: float) -> bool:
    """Let a held unit run again. Returns whether it changed."""
    if unit.state in ("todo", "running"):
        return False
    if unit.state != "held":
        can_retry = unit.state in ("quarantined", "unverified", "cancelled")
        hint = f"; `paceline retry {unit.id}` tries it again" if can_retry else ""
        raise IllegalStep(f"{unit.id} is {unit.state}, not paused{hint}")
    return _try_again(store, unit, "resume", fresh=False, now=now)


def retry_unit(store: Store, unit: Unit, *, fresh: bool = False, now: float) -> bool:
    """Move a held, quarantined, unverified or cancelled unit back to `todo`. Returns whether it changed.

    If its campaign was cancelled, the campaign is active again; its other units stay cancelled. With `fresh` the unit
    also gives up its conversation and its workspace, and the wait for the account of that conversation.
    """
    if unit.state == "done":
        raise IllegalStep(f"{unit.id} is done; to do it again, add it to a plan under another id")
    if fresh and unit.state == "running":
        raise IllegalStep(f"{unit.id} is running in its conversation; `paceline cancel {unit.id}` first")
    has_begun = unit.conversation_id is not None or unit.result.workspace is not None
    if unit.state in ("todo", "running") and not (fresh and has_begun):
        return False
    return _try_again(store, unit, "retry", fresh=fresh, now=now)


def _try_again(store: Store, unit: Unit, action: Action, *, fresh: bool, now: float) -> bool:
    with store.together():
        if fresh:
            store.forget_conversation(unit.id)
        store.retry_units(unit.campaign, [unit.id], also_cancelled=True)
        campaign = find_campaign(store, unit.campaign)
        if campaign.state == "cancelled":
            store.set_campaign(msgspec.structs.replace(campaign, state="active"))
        _record(store, action, unit.id, now)
    return True


def accept_unit(store: Store, unit: Unit, *, now: float) -> bool:
    """Take an unverified unit as done. Returns whether it changed."""
    if unit.state == "done":
        return False
    if unit.state != "unverified":
        raise IllegalStep(f"{unit.id} is {unit.state}: only an unverified unit, whose check did not pass, is accepted")
    fields: dict[str, object] = {"reason": ACCEPTED, "resume_at": None}
    fields |= {"exit_code": unit.exit_code, "attempts": unit.counters.failures, **signature()}
    with store.together():
        store.move_units([unit.id], "done", ACCEPTED, now=now)
        store.append_events([Event("unit.done", now, None, unit.id, fields)])
        _record(store, "accept", unit.id, now)
    return True


def cancel_unit(store: Store, unit: Unit, *, now: float) -> Cancelled:
    """Cancel a unit that is not done. The leading engine ends its session."""
    if unit.state == "done":
        raise IllegalStep(f"{unit.id} is done; there is nothing left to cancel")
    with store.together():
        running = store.cancel_units(unit.campaign, [unit.id], now=now)
        _record(store, "cancel", unit.id, now)
    return Cancelled(units=int(unit.state != "cancelled"), running=tuple(running))


# -- capacity ------------------------------------------------------------------------------------


def present_scope(settings: Settings, scope: str) -> str:
    """Return the scope or pattern in its canonical spelling, under the name that its login is counted by."""
    return settings.login_scope(ScopePattern(scope).text)


def set_limit(store: Store, settings: Settings, scope: str, limit: int | None, *, now: float) -> str:
    """Set a limit (None for unlimited) and forget what was learnt. Returns the scope by its present name."""
    check_limit(limit)
    return _send_limit(store, settings, scope, limit, now, "limit", limit=limit)


def set_pool(store: Store, sessions: int | None, *, now: float) -> None:
    """Set how many sessions may run at once. Running sessions are never ended for it."""
    command_log.send(store, "limit", now=now, scope=SESSIONS, limit=check_limit(sessions))


def remove_limit(store: Store, settings: Settings, scope: str, *, now: float) -> str:
    """Make a scope unlimited, also where a pattern or the settings limit it."""
    return _send_limit(store, settings, scope, None, now, "remove")


def _send_limit(
    store: Store, settings: Settings, scope: str, most: int | None, now: float, command: str, **fields: object
) -> str:
    """Send a command that sets the limit of a scope. The row of a campaign or of an added host gets the same one."""
    scope = present_scope(settings, scope)
    if scope.startswith(CAMPAIGN):
        campaign = find_campaign(store, scope.removeprefix(CAMPAIGN))
        _replace(store, [msgspec.structs.replace(campaign, max_sessions=most)], "limit", now)
        return scope
    with store.together():
        hosts, name = known_hosts(store) if scope.startswith(HOST) else {}, scope.removeprefix(HOST)
        if name in hosts:
            save_hosts(store, hosts | {name: msgspec.structs.replace(hosts[name], max_sessions=most)})
        command_log.send(store, command, now=now, scope=scope, **fields)
    return scope


def reset_limit(store: Store, settings: Settings, scope: str, *, now: float) -> str:
    """Return a scope to the limit of the settings, and a client's key to that of its creation."""
    scope = present_scope(settings, scope)
    key = _key_of(store, scope)
    limit = None if key is None or key.parallel is None else {"limit": key.parallel}
    command_log.send(store, "limit" if limit else "reset", now=now, scope=scope, **limit or {})
    return scope


def set_rate(store: Store, settings: Settings, scope: str, rate: Rate | None, *, now: float) -> str:
    """Set how many runs and tokens may start in a minute; None returns to the rate of the settings, or of the key."""
    scope = present_scope(settings, scope)
    key = _key_of(store, scope)
    if not is_provider_scope(scope) and key is None:
        raise InvalidInput(
            f"{scope} has no rate: a provider, an account, a model or a client's key has one, such as openai/work or "
            "key:team"
        )
    if rate is None and key is not None and (key.rpm is not None or key.tpm is not None):
        rate = Rate(rpm=key.rpm, tpm=key.tpm)
    if rate is None:
        command_log.send(store, "reset_rate", now=now, scope=scope)
    else:
        checked = check_rate(rate, "rate")
        command_log.send(store, "rate", now=now, scope=scope, rpm=checked.rpm, tpm=checked.tpm)
    return scope


def _key_of(store: Store, scope: str) -> ClientKey | None:
    keys = present_keys(store.client_keys()) if scope.startswith(KEY) else []
    return next((each.key for each in keys if scope_of_key(each.key.name) == scope), None)


def set_cooldown(store: Store, settings: Settings, scope: str, cooldown: Cooldown, *, now: float) -> str:
    """Set how long a released slot still counts: seconds, or "auto" to learn it from usage readings."""
    scope = present_scope(settings, scope)
    if not is_provider_scope(scope):
        raise InvalidInput(f"{scope} has no cooldown: only what a provider counts has one, such as anthropic/max-1")
    command_log.send(store, "cooldown", now=now, scope=scope, seconds=check_cooldown(cooldown, "cooldown"))
    return scope


def restore_scope(store: Store, settings: Settings, scope: str, *, known: Iterable[str] = (), now: float) -> str:
    """Forget what was learnt about a scope, and lift a hold. `known` are scopes besides those of settings and plans."""
    pattern = ScopePattern(present_scope(settings, scope))
    all_known = _known_scopes(store, settings, known)
    if not _is_known(pattern, all_known):
        hint = did_you_mean(pattern.text, all_known) or "; `paceline limits` lists them"
        raise UnknownName(f"there is no scope {pattern.text!r:.80}{hint}")
    with store.together():
        command_log.send(store, "restore", now=now, scope=pattern.text)
        if pattern.is_exact:
            command_log.send(store, "lift", now=now, scope=pattern.text)
    return pattern.text


def scope_meant(store: Store, settings: Settings, scope: str) -> str | None:
    """Return the known scope that was probably meant by one that nothing mentions; None if it may be right."""
    known = _known_scopes(store, settings)
    account = "/".join(scope.split("/", 2)[:2])
    return None if _is_known(ScopePattern(scope), known) else nearest(account, known, likeness=MISSPELT_LIKENESS)


def _known_scopes(store: Store, settings: Settings, others: Iterable[str] = ()) -> set[str]:
    """Return the scopes that settings, accounts and campaigns mention, besides those of models."""
    campaigns = store.campaigns()
    used = [each for campaign in campaigns for each in settings.campaign_accounts(campaign.agent, campaign.accounts)]
    accounts = [*settings.accounts.values(), *used]
    known = {SESSIONS, RUNS, *others, *settings.limits, *(each.provider for each in accounts)}
    known |= {account.scope for account in accounts}
    known |= {limit.partition("/")[0] for limit in settings.limits}
    known |= {f"{CAMPAIGN}{each.name}" for each in campaigns} | {f"agent:{each.agent}" for each in campaigns}
    known |= {scope_of_key(each.key.name) for each in present_keys(store.client_keys())}
    known |= {f"{HOST}{name}" for name in (*settings.hosts, *known_hosts(store))}
    return known


def _is_known(pattern: ScopePattern, known: set[str]) -> bool:
    is_model_known = pattern.text.count("/") == 2 and pattern.text.rpartition("/")[0] in known
    return not pattern.is_exact or pattern.text in known or is_model_known


def add_host(store: Store, host: HostSettings, *, update: bool = False) -> None:
    """Store a host. Raise `InvalidInput` if there is one of that name, unless it is to be updated."""
    with store.together():
        hosts = known_hosts(store)
        if host.name in hosts and not update:
            raise InvalidInput(
                f"there is a host {host.name} already: `paceline hosts add {host.name} --update ...` changes it, "
                f"`paceline hosts remove {host.name}` removes it"
            )
        save_hosts(store, {**hosts, host.name: host})
        command_log.send(store, "host", now=time.time(), action="add", target=host.name)


def remove_host(store: Store, name: str, *, force: bool = False) -> HostSettings:
    """Forget a host, and return what it was. Raise `InvalidInput` while units run there, unless it is forced."""
    with store.together():
        hosts = known_hosts(store)
        if name not in hosts:
            hint = did_you_mean(name, hosts) or "; `paceline hosts` lists them"
            raise UnknownName(f"there is no host {name!r:.80}{hint}")
        units = store.running_units(also_cancelled=True)
        running = [unit.id for unit in units if split_login(unit.account or "")[1] == name]
        if running and not force:
            more = f" and {len(running) - 3} more" if len(running) > 3 else ""
            raise InvalidInput(
                f"{len(running)} units run on {name} ({', '.join(running[:3])}{more}): wait for them or cancel them; "
                "--force removes the host nevertheless, and they run again elsewhere after its lease"
            )
        host = hosts.pop(name)
        save_hosts(store, hosts)
        command_log.send(store, "host", now=time.time(), action="remove", target=name)
    return host


# -- keys of clients ------------------------------------------------------------------------------

KEY_PREFIX: Final = "pk-paceline-"
RANDOM_BYTES: Final = 32
"""Random bytes of a key: 256 bits, which nobody can guess, so that a plain SHA-256 of them is enough."""
MOST_MODELS: Final = 1000
"""Models that one key may name: more than any provider has."""
HIGHEST_PRIORITY: Final = 9999
"""As `x-paceline-priority` allows."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_BUDGET: Final = re.compile(r"\$\s*([0-9]{1,10}(?:\.[0-9]{1,2})?)(?:/(day|month))?")
_MODEL: Final = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._:@+~/*?-]{0,199}")


class KeyRequest(KeyRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key as a person asks for it. Fields are named as in `paceline keys create`."""

    budget: str | None = None


def create_key(store: Store, settings: Settings, request: KeyRequest, *, now: float) -> tuple[ClientKey, str]:
    """Store a key. Returns it with its text, which is known only here.

    Raise `InvalidInput`, and change nothing, if a value of it is wrong or its name is taken.
    """
    record = checked_key(settings, request, now=now)
    text = KEY_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    fields = {**key_fields(record), **signature()}
    with store.together():
        store.create_client_key(record, digest_of_key(text.encode()))
        store.append_events([Event("key.created", now, scope_of_key(record.name), None, fields)])
    return record, text


def revoke_key(store: Store, name: str, *, now: float) -> ClientKey:
    """Let no gateway accept the key any more. Raise `UnknownName` if no key has that name."""
    with store.together():
        present = [each.key.name for each in present_keys(store.client_keys())]
        if name not in present:
            hint = did_you_mean(name, present) or "; `paceline keys list` lists them"
            raise UnknownName(f"there is no key {name!r:.80}{hint}")
        record = store.revoke_client_key(name, now=now)
        store.append_events([Event("key.revoked", now, scope_of_key(name), None, {"name": name, **signature()})])
    return record


def present_keys(keys: Iterable[HashedKey]) -> list[HashedKey]:
    """Return the keys that are not revoked."""
    return [each for each in keys if each.key.revoked_at is None]


def digest_of_key(text: bytes) -> str:
    """Return the SHA-256 of a key. It needs no salt: the text is random and long."""
    return hashlib.sha256(text).hexdigest()


def scope_of_key(name: str) -> str:
    """Return the scope in which the calls of a key are counted."""
    return f"{KEY}{name}"


def key_fields(record: ClientKey) -> dict[str, object]:
    """Return what a key allows, by the names that people see."""
    budget = None if record.budget is None else record.budget.text
    return {**fields_of(KeyRules, record), "models": list(record.models), "budget": budget}


# -- checks --------------------------------------------------------------------------------------


def checked_key(settings: Settings, request: KeyRequest, *, now: float) -> ClientKey:
    """Return the key that was asked for. Raise `InvalidInput` with every value that is wrong."""
    if mistakes := list(_mistakes(settings, request)):
        raise InvalidInput("; ".join(mistakes))
    models = tuple(dict.fromkeys(map(model_pattern, request.models)))
    budget = None if request.budget is None else parse_budget(request.budget)
    rules = fields_of(KeyRules, request) | {"models": models, "budget": budget, "created_at": now}
    return msgspec.convert(rules, ClientKey)


def _mistakes(settings: Settings, request: KeyRequest) -> Iterator[str]:
    """Yield what is wrong with each value."""
    if not _NAME.fullmatch(name := request.name):
        yield f"{name!r:.80} cannot name a key: use 1 to 63 letters, digits and . _ -, and begin with a letter or digit"
    if request.pool is not None and request.pool not in settings.gateway_addresses:
        yield str(unknown_address(settings, request.pool))
    if (count := len(request.models)) > MOST_MODELS:
        yield f"a key may name {MOST_MODELS} models at most; got {count}: use a pattern (opus-*)"
    elif wrong := [model for model in request.models if not _MODEL.fullmatch(model)]:
        yield f"{wrong[0]!r:.80} is not the name of a model, or a pattern such as opus-*"
    for name, value in (("rpm", request.rpm), ("tpm", request.tpm), ("parallel", request.parallel)):
        try:
            check_limit(value, name)
        except InvalidLimit:
            yield f"{name} must be a whole number from 1 to {LARGEST_LIMIT}, or left out for none; got {value!r:.80}"
    if type(request.priority_max) is not int or not -HIGHEST_PRIORITY <= request.priority_max <= HIGHEST_PRIORITY:
        yield f"priority_max must be a whole number from -9999 to 9999; got {request.priority_max!r:.80}"
    try:
        check_weight(request.weight)
    except InvalidInput as error:
        yield str(error)
    if request.budget is not None:
        try:
            parse_budget(request.budget)
        except InvalidInput as error:
            yield str(error)
    given = {"--models": request.models, "--budget": request.budget, "--tpm": request.tpm}
    if request.all_paths and (rules := [rule for rule, value in given.items() if value]):
        yield (
            f"--all-paths cannot be combined with {' and '.join(rules)}: batches and stored answers would bypass it. "
            "Leave it out, or make a second key"
        )


def parse_budget(text: str) -> KeyBudget:
    """Return the budget that a person wrote, such as `$50/month`, `$5/day` or `$100`."""
    found = _BUDGET.fullmatch(text.strip().replace(",", ""))
    dollars = 0.0 if found is None else float(found[1])
    if found is None or not 0 < dollars <= LARGEST_BUDGET:
        raise InvalidInput(
            f"budget {text!r:.80} must be dollars above 0 per day, per month or in all: '$5/day', '$50/month' or "
            "'$100' (in single quotes: in double quotes a shell replaces $5)"
        )
    periods: tuple[BudgetPeriod, ...] = get_args(BudgetPeriod)
    return KeyBudget(dollars, next((each for each in periods if each == found[2]), "total"))


def unknown_address(settings: Settings, name: str) -> InvalidInput:
    """Return the error for a name that is no address of the gateway: neither a metered account nor a pool."""
    if any(name in (each.name, each.id) and each.kind != "metered" for each in settings.accounts.values()):
        return InvalidInput(
            f"{name} is a subscription, and the gateway takes API keys only: use the vendor's own CLI through"
            " `paceline run` or `paceline exec`"
        )
    known = settings.gateway_addresses
    listed = ", ".join(known) or "none yet: add an account with key_env to paceline.toml"
    hint = did_you_mean(name, known)
    it = f"{hint} It" if hint else "; it"
    return InvalidInput(f"the gateway has no account or pool {name!r:.80}{it} has: {listed}")
