"""The asyncio face of the Governor: `Limiter`, the `Slot` it grants, and its `LimiterStatus`."""

from paceline.limiter.limiter import Limiter
from paceline.limiter.slot import Slot
from paceline.limiter.status import LimiterStatus

__all__ = ["Limiter", "LimiterStatus", "Slot"]
