"""What is configured by scope or pattern, every scope by name, and every lane by what its tickets have in common.

Both are made on first use; a lane is dropped when nothing is in it. Here: in which lane a ticket stands. Never here:
places, and who may enter.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from paceline.core.gates.rates import RateLimit
from paceline.core.gates.start_meters import FirstRamp
from paceline.core.gates.usage_poll import UsagePoll
from paceline.core.limits import UNLIMITED
from paceline.core.state.fairness import FairShares, Group, weight_of
from paceline.core.state.lane import Lane, LiveSlot, WatchTable
from paceline.core.state.scope import Scope
from paceline.core.state.usage_meter import UsageMeter
from paceline.core.values.scopes import (
    KEY,
    SESSIONS,
    UNNAMED_MODEL,
    ScopePattern,
    canonical_scope,
    is_provider_scope,
    is_unnamed_model,
)
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode, Rate
from paceline.core.values.tickets import Ticket
from paceline.core.values.validation import check_limit
from paceline.errors import InvalidInput, InvalidScope, UnresolvedModel

Value = TypeVar("Value")


class PatternTable(Generic[Value]):
    """Values by scope or pattern. Of overlapping patterns the most specific wins."""

    def __init__(self, settings: dict[str, Value], live: dict[str, Value]) -> None:
        self.settings = {ScopePattern(text).text: value for text, value in settings.items()}
        self.live = dict(live)
        self._order()

    def set_live(self, text: str, value: Value) -> None:
        self.live[ScopePattern(text).text] = value
        self._order()

    def reset_live(self, text: str) -> None:
        self.live.pop(ScopePattern(text).text, None)
        self._order()

    def lookup(self, scope: str) -> tuple[str, Value] | None:
        """Return the entry that applies to the scope: its pattern and value."""
        if scope in self._merged:
            return scope, self._merged[scope]
        if is_unnamed_model(scope) and (strictest := self._strictest(scope)) is not None:
            return strictest
        for pattern in self._wildcards:
            if pattern.matches(scope):
                return pattern.text, self._merged[pattern.text]
        return None

    def _strictest(self, scope: str) -> tuple[str, Value] | None:
        """Return the strictest entry for models of the account, for a slot that names no model."""
        account = scope.rpartition("/")[0]
        entries = [(pattern.text, self._merged[pattern.text]) for pattern in self._patterns_for_models(account)]
        return min(entries, key=lambda entry: self.strictness(entry[1]), default=None)

    def strictness(self, value: Value) -> float:
        """Return a number that is smaller for a stricter value. Here all values are alike."""
        return 0.0

    def _patterns_for_models(self, path: str) -> list[ScopePattern]:
        return [
            pattern
            for pattern in self._patterns
            if self._merged[pattern.text] is not None and pattern.matches_account_of(path)
        ]

    def lookup_path(self, scope: str) -> Value | None:
        """Return the value of the scope, else of the path it lies in."""
        found = self.entry_on_path(scope)
        return None if found is None else found[1]

    def entry_on_path(self, scope: str) -> tuple[str, Value] | None:
        """Return the entry that applies to the scope, else to the path it lies in."""
        while (found := self.lookup(scope)) is None:
            if "/" not in scope:
                return None
            scope = scope.rsplit("/", 1)[0]
        return found

    def entries(self) -> dict[str, Value]:
        return dict(self._merged)

    def model_needed(self, scopes: tuple[str, ...]) -> tuple[str, str] | None:
        """Return a provider path that lacks a model although caps per model apply to it, and such a cap."""
        paths = [scope for scope in scopes if is_provider_scope(scope)]
        for path in paths:
            if path.count("/") < 2 and not any(other.startswith(path + "/") for other in paths):
                for pattern in self._patterns_for_models(path):
                    return path, pattern.text
        return None

    def _order(self) -> None:
        self._merged = {**self.settings, **self.live}
        self._patterns = [ScopePattern(text) for text in self._merged]
        wildcards = [pattern for pattern in self._patterns if not pattern.is_exact]
        self._wildcards = sorted(wildcards, key=lambda pattern: pattern.specificity, reverse=True)


class LimitTable(PatternTable[int | None]):
    """Configured limits. An entry of None means: explicitly unlimited."""

    def strictness(self, value: int | None) -> float:
        return UNLIMITED if value is None else value

    def configured(self, scope: str) -> int | None:
        found = self.lookup(scope)
        return found[1] if found else None

    def ruling_entry(self, scope: str) -> tuple[str, bool] | None:
        """Return the name or pattern that the scope's limit comes from, and whether it was set live."""
        found = self.lookup(scope)
        return None if found is None else (found[0], found[0] in self.live)

    def set(self, text: str, limit: int | None) -> None:
        self.set_live(text, check_limit(limit))

    def remove(self, text: str) -> None:
        """Make the scope unlimited. An entry is kept only where another one would take its place."""
        self.reset_live(text)
        if self.lookup(ScopePattern(text).text) is not None:
            self.set_live(text, None)


class RateTable(PatternTable[Rate]):
    """Configured rates."""

    def strictness(self, value: Rate) -> float:
        """Compare by runs per minute, and only rates without them by tokens."""
        return value.rpm if value.rpm is not None else UNLIMITED + (value.tpm or 0)


class LiveSettings(msgspec.Struct, frozen=True):
    """What a person set live, by scope or pattern: it wins over the settings until it is reset."""

    limits: dict[str, int | None] = {}
    cooldowns: dict[str, Cooldown] = {}
    modes: dict[str, HeadroomMode] = {}
    rates: dict[str, Rate] = {}


class ScopeTable:
    """All scopes, and the tables of what is configured for each."""

    def __init__(self, settings: GovernorSettings, live: LiveSettings, now: float) -> None:
        self.settings = settings
        self.limits = LimitTable(settings.limits, live.limits)
        self.cooldowns: PatternTable[Cooldown] = PatternTable(settings.cooldowns, live.cooldowns)
        self.modes: PatternTable[HeadroomMode] = PatternTable(settings.headrooms, live.modes)
        self.reserves: PatternTable[float] = PatternTable(settings.reserves, {})
        self.rates = RateTable(settings.rates, live.rates)
        self.by_name: dict[str, Scope] = {}
        for text in (*settings.limits, *settings.cooldowns):
            if (pattern := ScopePattern(text)).is_exact:
                self.scope(pattern.text, now)

    def scope(self, name: str, now: float) -> Scope:
        """Return the scope of a canonical name, made on first use."""
        scope = self.by_name.get(name)
        if scope is None:
            cooldown, mode, reserve = self.cooldown_of(name), self.mode_of(name), self.reserve_of(name)
            scope = Scope(name, self.limits.configured(name), cooldown, mode, reserve, UsageMeter(now))
            if name in self.settings.usage_scopes:
                scope.usage = UsagePoll(self.settings.usage_interval, self.settings.usage_timeout)
            if (rate := self.rates.lookup(name)) is not None:
                scope.gates.put(RateLimit(rate[1]))
            scope.refresh()
            self.by_name[name] = scope
        return scope

    def begin_ramp(self, scope: Scope) -> None:
        """Let the first sessions of a provider scope start over some seconds, if nothing has run there before."""
        is_new = not scope.meter.starts and scope.gates.get(FirstRamp) is None
        if self.settings.first_ramp and scope.is_provider and scope.mode == "adaptive" and is_new:
            scope.put_gate(FirstRamp(self.settings.first_ramp))

    def cooldown_of(self, name: str) -> Cooldown:
        """Return its own cooldown, else that of the path it lies in, else the default of its account."""
        found = self.cooldowns.lookup_path(name)
        if found is not None:
            return found
        return 0.0 if "/".join(name.split("/", 2)[:2]) in self.settings.lag_learnt else self.settings.cooldown

    def mode_of(self, name: str) -> HeadroomMode:
        """Return its own mode, else that of the path it lies in, else the default."""
        return self.modes.lookup_path(name) or self.settings.headroom

    def reserve_of(self, name: str) -> float:
        """Return its own reserve, else that of the path it lies in: an account's holds for its models' windows too."""
        return self.reserves.lookup_path(name) or 0.0

    def with_models(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Add the unnamed model of each account that has caps per model, where the names leave the model out.

        Raise `UnresolvedModel` for a provider path that does not even name the account.
        """
        while (missing := self.limits.model_needed(names) or self.rates.model_needed(names)) is not None:
            path, cap = missing
            if "/" not in path:
                raise UnresolvedModel(
                    f"{path!r} names no account and no model, but caps per model apply there ({cap});"
                    f" write {path}/ACCOUNT or {path}/ACCOUNT/MODEL"
                )
            names = (*names, f"{path}/{UNNAMED_MODEL}")
        return names

    def forget_idle(self, now: float) -> None:
        """Drop idle scopes. Scopes with a setting of their own stay."""
        named = {*self.limits.entries(), *self.cooldowns.entries(), *self.rates.live}
        self.by_name = {name: scope for name, scope in self.by_name.items() if name in named or not scope.is_idle(now)}


TIDY_AT_LEAST = 2048
"""How many scopes, lanes and groups may pile up before idle ones are dropped: a pass over them costs milliseconds."""

TableKey = tuple[tuple[str, ...], str, int, str | None, bool]


class LaneTable:
    """All lanes. `of_session` has the lanes of each live session's runs, by the session's ticket."""

    def __init__(
        self, scopes: ScopeTable, shares: FairShares, watches: WatchTable, slots: Mapping[str, LiveSlot]
    ) -> None:
        self.by_key: dict[TableKey, Lane] = {}
        self.of_session: dict[str, dict[Lane, None]] = {}
        self._scopes = scopes
        self._shares = shares
        self._watches = watches
        self._slots = slots
        self._tidy_at = TIDY_AT_LEAST

    def lane(self, ticket: Ticket, now: float) -> Lane:
        """Return the lane the ticket belongs in. Its scopes are checked when the lane is made."""
        key = (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        lane = self.by_key.get(key)
        if lane is not None:
            return lane
        if type(ticket.priority) is not int:
            raise InvalidInput(f"priority must be a whole number; got {ticket.priority!r}")
        names = tuple(canonical_scope(name) for name in ticket.scopes)
        if not names:
            raise InvalidScope("a ticket must name at least one scope")
        self._scopes.with_models(names)
        return self._make(key, ticket.weight, now)

    def accepted_lane(self, ticket: Ticket, now: float) -> Lane:
        """Return the lane of a ticket that was checked when it came in."""
        key = (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        return self.by_key.get(key) or self._make(key, ticket.weight, now)

    def _make(self, key: TableKey, own_weight: float | None, now: float) -> Lane:
        scopes, group_name, priority, parent, spread = key
        if parent is not None and parent not in self._slots:  # no such session now: its runs stand alone
            key = (scopes, group_name, priority, _absent(parent), spread)
            if (known := self.by_key.get(key)) is not None:
                return known
        names = self._names(scopes)
        self._tidy(now)
        session = self._slots.get(parent) if parent is not None else None
        weight = weight_of(priority) if own_weight is None else own_weight
        group = self._shares.group(group_name or priority, weight, now)
        states = tuple(self._scopes.scope(name, now) for name in names)
        if SESSIONS in names:
            for state in states:
                self._scopes.begin_ramp(state)
        lane = Lane(states, group, weight, session, is_spread=spread)
        if group_name.startswith(KEY):
            lane.order = -priority
        for scope in lane.scopes:
            scope.lane_count += 1
            if lane.account is not None and lane.account.name.startswith(f"{scope.name}/"):
                scope.cools_by_account |= lane.account.cooldown_setting != scope.cooldown_setting
                scope.refresh()
        if session is not None:
            self.of_session.setdefault(session.ticket.id, {})[lane] = None
        self.by_key[key] = lane
        return lane

    def _names(self, scopes: tuple[str, ...]) -> dict[str, None]:
        """Return the names of all scopes that a ticket occupies, each once."""
        names = tuple(canonical_scope(name) for name in scopes)
        with suppress(UnresolvedModel):  # of a ticket that was accepted before such a cap was set
            names = self._scopes.with_models(names)
        return dict.fromkeys(names)

    def groups_waiting_in(self, scope: Scope) -> set[Group]:
        """Return the groups with a ticket that waits for room of its own in the scope, so not for their runs."""
        return {
            lane.group
            for lane in self.by_key.values()
            if lane.size and scope in lane.scopes and not (lane.parent is not None and scope.is_provider)
        }

    def forget_empty(self, parent: str | None = None) -> None:
        """Drop empty lanes (of one parent), so that they are made and checked again."""
        for key in [k for k, lane in self.by_key.items() if not lane.size and (parent is None or k[3] == parent)]:
            lane = self.by_key.pop(key)
            for scope in lane.scopes:
                scope.lane_count -= 1
            if lane.parent is not None:
                self.of_session.get(lane.parent.ticket.id, {}).pop(lane, None)

    def _tidy(self, now: float) -> None:
        """Drop scopes, lanes and groups of campaigns and agents long gone, so that they do not pile up."""
        if self._size() < self._tidy_at:
            return
        self.forget_empty()
        self._scopes.forget_idle(now)
        self._watches.keep_only(self._scopes.by_name.values())
        lanes = [*self.by_key.values(), *(slot.lane for slot in self._slots.values())]
        self._shares.keep_only({lane.group for lane in lanes})
        self._tidy_at = max(TIDY_AT_LEAST, 2 * self._size())

    def _size(self) -> int:
        return len(self._scopes.by_name) + len(self.by_key) + len(self._shares.groups)

    def end_session(self, session: LiveSlot) -> None:
        """Move runs that still wait when their session ends to lanes without a session.

        A later session may have the same name; only its own runs belong to it.
        """
        session_id = session.ticket.id
        for lane in self.of_session.pop(session_id):
            self._watches.leave_session(lane)
        absent = _absent(session_id)
        self.forget_empty(parent=absent)
        for key in [key for key, lane in self.by_key.items() if key[3] == session_id and lane.size]:
            scopes, group, priority, _, spread = key
            alone = (scopes, group, priority, absent, spread)
            if alone in self.by_key:
                alone = (scopes, group, priority, f"{absent} since {session.token}", spread)
            self.by_key[alone] = self.by_key.pop(key)
        self.forget_empty(parent=session_id)


def _absent(parent: str) -> str:
    """Return the parent of runs whose session has ended, so that a later session of that name has its own lanes."""
    return f"{parent} (absent)"
