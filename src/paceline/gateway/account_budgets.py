"""The daily budgets of accounts: what the calls of the gateway may cost on each of them in a day (UTC).

A call is refused before it begins, with the status 402, as by the budget of a key. Never here: sessions, whose cost is
not known by day.
"""

import time
from typing import Protocol

from paceline.clock import Clock
from paceline.gateway.budget_events import BudgetEvents
from paceline.gateway.errors import BUDGET_REACHED, GatewayError
from paceline.gateway.key_rules import IsPriced
from paceline.gateway.spend_totals import day_of
from paceline.settings import AccountSettings
from paceline.store import KeyBudget


class AccountSpend(Protocol):
    """What is known of the dollars of each account. Days are those of UTC."""

    def spent_on(self, account: str, day: str) -> float: ...


class AccountBudgets:
    """The budgets of all accounts of one gateway."""

    def __init__(self, spend: AccountSpend, events: BudgetEvents, is_priced: IsPriced, clock: Clock) -> None:
        self._spend = spend
        self._events = events
        self._is_priced = is_priced
        self._clock = clock

    def check(self, account: AccountSettings, model: str | None) -> None:
        """Raise `GatewayError` if the budget of the account is reached, or could not count a call of this model."""
        if account.daily_budget is None:
            return
        now, budget = self._clock.now(), KeyBudget(account.daily_budget, "day")
        spent = self._announce(account, budget, now)
        if spent >= budget.dollars:
            resumes_at = budget.begins_again_at(now)
            assert resumes_at is not None
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(resumes_at))
            message = f"the budget of the account {account.name}, {budget.text}, is reached (${spent:,.2f} spent)"
            raise GatewayError(402, BUDGET_REACHED, f"{message}; it continues at {when}", retry_after=resumes_at - now)
        if model is None or not self._is_priced(model):
            named = "a call without a model" if model is None else f"the model {model!r:.80}"
            message = f"{named} has no price, and the account {account.name} has a budget; add it to [prices]"
            raise GatewayError(403, "model_not_priced", message)

    def note(self, account: AccountSettings) -> None:
        """Announce a budget that is nearly or wholly spent, after a call."""
        if account.daily_budget is not None:
            self._announce(account, KeyBudget(account.daily_budget, "day"), self._clock.now())

    def _announce(self, account: AccountSettings, budget: KeyBudget, now: float) -> float:
        """Return what is spent today, after the events that it causes."""
        day = day_of(now)
        spent = self._spend.spent_on(account.name, day)
        self._events.announce(account.scope, budget, spent, now, period=(day, budget), was_known=True)
        return spent
