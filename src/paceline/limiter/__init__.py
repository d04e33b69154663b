"""The asyncio face of the Governor: `Limiter`, its status, what a caller asks for, and the `Slot` that it grants."""

from paceline.limiter.limiter import Limiter, LimiterStatus
from paceline.limiter.slot import AdmissionRequest, OnQueued, QueueOptions, Slot
from paceline.limiter.slot_admission import SlotContext

__all__ = ["AdmissionRequest", "Limiter", "LimiterStatus", "OnQueued", "QueueOptions", "Slot", "SlotContext"]
