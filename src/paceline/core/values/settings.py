"""The settings of a Governor, validated as a whole before anything uses them."""

from typing import Final, Literal

import msgspec

from paceline.core.values.scopes import ScopePattern
from paceline.core.values.validation import check_limit, check_seconds
from paceline.errors import InvalidInput, InvalidLimit

HeadroomMode = Literal["adaptive", "one-way", "off"]
AUTO: Final = "auto"
Cooldown = float | Literal["auto"]
"""Seconds, or learnt from how far the provider's own count trails behind."""
HEADROOM_MODES: tuple[HeadroomMode, ...] = ("adaptive", "one-way", "off")


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs and how many tokens may start in a minute; None means any number."""

    rpm: int | None = None
    tpm: int | None = None


def check_rate(value: object, name: str) -> Rate:
    """Return a `Rate` from one, or from a dict with its fields."""
    if isinstance(value, Rate):
        fields = msgspec.structs.asdict(value)
    elif isinstance(value, dict) and value.keys() <= set(Rate.__struct_fields__):
        fields = value
    else:
        raise InvalidLimit(f"{name} must be a Rate, or a dict with rpm, tpm or both; got {value!r:.80}")
    return Rate(**{key: check_limit(number, f"{name}.{key}") for key, number in fields.items()})


FIRST_RAMP_SECONDS = 15.0
"""How long the first sessions of an unknown scope take to reach its limit: a refusal comes back within seconds."""


class GovernorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings by scope or pattern. Cooldowns, headrooms and reserves apply to everything inside a scope too.

    `reserves` are the shares of every window that are left to the person. Each scope that matches an entry of
    `rates` has that rate for itself. All times are in seconds:

    - `default_pause` is the pause after a 429 that names none.
    - `slot_timeout` is how long a lease lasts without renewal.
    - `watchdog_interval` is how often leases are checked.
    - `lost_grace` is how long a lost slot still counts: its holder may need that long to end.
    - `ageing` is the largest head start of an old prompt, and how long a ticket may be passed over.
    - `first_ramp` is how long the sessions of a provider scope that nothing is known about take to reach its limit.
      With 0, a new Governor grants up to the limit at once.
    - `usage_interval` and `usage_timeout` are for polls of the provider's own count.

    `lag_learnt` are accounts whose released slots do not count, unless a cooldown is set: refusals teach the lag.
    """

    limits: dict[str, int | None] = {}
    cooldown: Cooldown = 0.0
    cooldowns: dict[str, Cooldown] = {}
    lag_learnt: tuple[str, ...] = ()
    headroom: HeadroomMode = "adaptive"
    headrooms: dict[str, HeadroomMode] = {}
    reserves: dict[str, float] = {}
    rates: dict[str, Rate] = {}
    usage_scopes: tuple[str, ...] = ()
    default_pause: float = 30.0
    slot_timeout: float = 300.0
    watchdog_interval: float = 30.0
    lost_grace: float = 30.0
    ageing: float = 60.0
    usage_interval: float = 1.0
    usage_timeout: float = 5.0
    first_ramp: float = FIRST_RAMP_SECONDS

    def __post_init__(self) -> None:
        for scope, limit in self.limits.items():
            ScopePattern(scope)
            check_limit(limit, f"limits[{scope!r}]")
        check_cooldown(self.cooldown, "cooldown")
        for scope, cooldown in self.cooldowns.items():
            ScopePattern(scope)
            check_cooldown(cooldown, f"cooldowns[{scope!r}]")
        check_headroom(self.headroom, "headroom")
        for scope, mode in self.headrooms.items():
            ScopePattern(scope)
            check_headroom(mode, f"headrooms[{scope!r}]")
        for scope, reserve in self.reserves.items():
            ScopePattern(scope)
            if isinstance(reserve, bool) or not isinstance(reserve, int | float) or not 0 <= reserve < 1:
                raise InvalidInput(f"reserves[{scope!r}] must be a share from 0 to below 1; got {reserve!r}")
        for scope, rate in self.rates.items():
            ScopePattern(scope)
            check_rate(rate, f"rates[{scope!r}]")
        for scope in (*self.usage_scopes, *self.lag_learnt):
            ScopePattern(scope)
        for name in ("default_pause", "lost_grace", "ageing", "first_ramp"):
            check_seconds(getattr(self, name), name)
        for name in ("slot_timeout", "watchdog_interval", "usage_interval", "usage_timeout"):
            check_seconds(getattr(self, name), name, above_zero=True)


def check_cooldown(value: object, name: str) -> Cooldown:
    return AUTO if value == AUTO else check_seconds(value, name)


def check_headroom(mode: object, name: str) -> HeadroomMode:
    if mode not in HEADROOM_MODES:
        raise InvalidInput(f"{name} must be one of {', '.join(HEADROOM_MODES)}; got {mode!r}")
    return mode
