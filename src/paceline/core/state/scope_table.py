"""Every scope by name, made on first use from the tables of what is configured there."""

from paceline.core.gates.rates import RateLimit
from paceline.core.gates.start_meters import FirstRamp
from paceline.core.gates.usage_poll import UsagePoll
from paceline.core.state.limit_table import LimitTable, PatternTable, RateTable
from paceline.core.state.scope import Scope
from paceline.core.values.rates import Rate
from paceline.core.values.scopes import UNNAMED_MODEL, ScopePattern
from paceline.core.values.settings import Cooldown, GovernorSettings, HeadroomMode
from paceline.errors import UnresolvedModel


class LiveSettings:
    """What a person set live, by scope or pattern: it wins over the settings until it is reset."""

    __slots__ = ("cooldowns", "limits", "modes", "rates")

    def __init__(
        self,
        limits: dict[str, int | None] | None = None,
        cooldowns: dict[str, Cooldown] | None = None,
        modes: dict[str, HeadroomMode] | None = None,
        rates: dict[str, Rate] | None = None,
    ) -> None:
        self.limits = limits or {}
        self.cooldowns = cooldowns or {}
        self.modes = modes or {}
        self.rates = rates or {}


class ScopeTable:
    """All scopes, and the tables of what is configured for each."""

    __slots__ = ("by_name", "cooldowns", "limits", "modes", "rates", "reserves", "settings")

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
            scope = Scope(name, self.limits.configured(name), cooldown, mode, reserve, now)
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
