"""The events of budgets: one when a budget is nearly spent, one when it is reached, in each of its periods."""

from collections.abc import Callable

from paceline.events import Event
from paceline.store import KeyBudget
from paceline.store.client_keys import WARNING_SHARE

EVENT_NAMES = {WARNING_SHARE: "budget.warning", 1.0: "budget.reached"}


class BudgetEvents:
    """What was announced of each budget, by the scope that it is for. `emit` stores an event."""

    def __init__(self) -> None:
        self.emit: Callable[[Event], object] | None = None
        self._announced: dict[str, tuple[object, float]] = {}
        """The period of each budget, and the highest share in it that was announced."""

    def announce(
        self, scope: str, budget: KeyBudget, spent: float, now: float, *, period: object, was_known: bool
    ) -> None:
        """Emit an event for each share that is reached and was not announced in this period.

        `was_known`: another process may have announced what is spent when this one first reads the budget.
        """
        known = self._announced.get(scope)
        if known is not None and spent < WARNING_SHARE * budget.dollars:
            return  # as most calls
        share = max((each for each in EVENT_NAMES if spent >= each * budget.dollars), default=0.0)
        if known is None and was_known:
            known = (period, share)
        if known is None or known[0] != period:
            known = (period, 0.0)
        self._announced[scope] = (period, max(share, known[1]))
        if share > known[1] and self.emit is not None:
            fields: dict[str, object] = {"budget": budget.text, "spent": round(spent, 6), "share": share}
            fields["resumes_at"] = budget.begins_again_at(now)
            self.emit(Event(EVENT_NAMES[share], now, scope, None, fields))
