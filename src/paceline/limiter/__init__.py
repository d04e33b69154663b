"""The asyncio face of the Governor: `Limiter`, the `Slot` it grants, and its `LimiterStatus`."""

from paceline.limiter.limiter import Limiter, LimiterStatus
from paceline.limiter.slot import Slot
from paceline.limiter.slot_admission import SlotContext

__all__ = ["Limiter", "LimiterStatus", "Slot", "SlotContext"]
