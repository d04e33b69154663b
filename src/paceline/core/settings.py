"""What a Governor is told at the start. Checked whole before anything uses it."""

from typing import Literal

import msgspec

from paceline.core.checks import check_limit, check_seconds
from paceline.core.scopes import ScopePattern
from paceline.errors import InvalidInput

HeadroomMode = Literal["adaptive", "one-way", "off"]
HEADROOM_MODES: tuple[HeadroomMode, ...] = ("adaptive", "one-way", "off")


class GovernorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Scopes in `limits` and `cooldowns` may be patterns. All times are seconds."""

    limits: dict[str, int | None] = {}
    cooldown: float = 0.0
    cooldowns: dict[str, float] = {}
    headroom: HeadroomMode = "adaptive"
    usage_scopes: tuple[str, ...] = ()
    default_pause: float = 30.0
    slot_timeout: float = 300.0
    watchdog_interval: float = 30.0
    lost_grace: float = 30.0
    ageing: float = 60.0
    usage_interval: float = 1.0
    usage_timeout: float = 5.0

    def __post_init__(self) -> None:
        for scope, limit in self.limits.items():
            ScopePattern(scope)
            check_limit(limit, f"limits[{scope!r}]")
        for scope, seconds in self.cooldowns.items():
            ScopePattern(scope)
            check_seconds(seconds, f"cooldowns[{scope!r}]")
        for scope in self.usage_scopes:
            ScopePattern(scope)
        for name in ("cooldown", "default_pause", "lost_grace", "ageing"):
            check_seconds(getattr(self, name), name)
        for name in ("slot_timeout", "watchdog_interval", "usage_interval", "usage_timeout"):
            check_seconds(getattr(self, name), name, above_zero=True)
        if self.headroom not in HEADROOM_MODES:
            raise InvalidInput(f"headroom must be one of {', '.join(HEADROOM_MODES)}; got {self.headroom!r}")
