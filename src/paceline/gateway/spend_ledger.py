"""The ledger of the gateway: what calls have cost, what those that run may still cost, and the budgets of both.

A call reserves its estimate when it is sent, and settles what it has cost when it ends. Both are entries of the day
(UTC) on which it was sent, and both are stored, so that a call that a crash ends has cost its estimate. A budget admits
a call if its estimate fits beside what is spent and reserved, or if nothing else is reserved.

Here: counting, budgets and their events. Never here: how many tokens a call has used (`request_accounting.py`), and a
store on its path.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from paceline.agents.account import Account
from paceline.clock import Clock, SystemClock
from paceline.core.values.scopes import canonical_model
from paceline.core.values.session_output import Tokens
from paceline.engine.commands import scope_of_key
from paceline.errors import LeadLost, StoreError
from paceline.events import Event
from paceline.gateway.routes import BUDGET_IN_USE, BUDGET_REACHED, BudgetError, CallRecord, unpriced
from paceline.protocols import RequestReader, ResponseReader
from paceline.settings.model import PriceList
from paceline.store import Balances, BatchId, ClientKey, KeyBudget, SpendRow, Store
from paceline.store.spend import WARNING_SHARE, SpendId, day_of, summed

log = logging.getLogger("paceline.gateway")

DAY_SECONDS = 86400
MOST_MODELS = 1000
"""Models with rows of their own in one day. Clients choose the names, and the table must not grow with them."""
OTHER_MODEL = "other"
STORE_SECONDS = 1.0
"""Between two writes to the store: what a crash may lose, against a write that delays all requests."""
OUTAGE_SECONDS = 30.0
"""Between two attempts while the store does not answer. An attempt holds up all requests."""
ANSWER_TOKENS = 4096
"""Reserved for the answer of a call that names no longest one: most answers are shorter."""
RETRY_SECONDS = 1.0
"""When a client may try again whose budget other calls have reserved until its wait ran out."""
DUST = 1e-9
"""Dollars that are nothing: what sums of floats leave over."""
EVENT_NAMES = {WARNING_SHARE: "budget.warning", 1.0: "budget.reached"}


class Estimate(msgspec.Struct, frozen=True):
    """What a call may use: its body, and the longest answer that it allows."""

    tokens: Tokens = Tokens()
    is_stream: bool = False
    others: tuple[str, ...] = ()
    """Further models that may serve it."""
    served: Mapping[str, str] = {}
    """How it wants to be served."""


def estimate_of(
    reader: RequestReader, body_bytes: int | None, *, is_stream: bool, others: tuple[str, ...] = ()
) -> Estimate:
    """Return what a call may use whose body has so many bytes, None if that is not known."""
    prompt = reader.tokens(body_bytes) - (reader.max_tokens or 0)
    answer = reader.max_tokens or ANSWER_TOKENS * reader.answers
    return Estimate(Tokens(input=max(0, prompt), output=answer), is_stream, others, reader.served)


class Limit(msgspec.Struct, frozen=True):
    """A budget that a call must fit in: that of its key, or that of its account."""

    name: str
    scope: str
    budget: KeyBudget
    key: ClientKey | None
    account: str


class Reservation(msgspec.Struct, eq=False):
    """What a call that runs may cost, as it is in the sums, and the budgets that it counts for."""

    row: SpendRow
    estimate: Estimate
    is_billed: bool
    limits: tuple[Limit, ...]


def limit_of_key(key: ClientKey) -> Limit | None:
    return None if key.budget is None else Limit(f"key {key.name}", scope_of_key(key.name), key.budget, key, "")


def limit_of_account(account: Account) -> Limit | None:
    if account.daily_budget is None:
        return None
    budget = KeyBudget(account.daily_budget, "day")
    return Limit(f"account {account.name}", account.scope, budget, None, account.name)


class SpendLedger:
    """The ledger of one gateway. Without a store, it lives as long as the process."""

    def __init__(self, prices: PriceList, clock: Clock | None = None) -> None:
        self.emit: Callable[[Event], object] | None = None
        """Stores an event of a budget."""
        self._announced: dict[str, tuple[object, float]] = {}
        """The period of each budget, by its scope, and the highest share in it that was announced."""
        self.settled = Balances()
        """Without what is reserved."""
        self._reserved = Balances()
        self._open: set[Reservation] = set()
        self._by_day: dict[str, SpendRow] = {}
        """What is settled of all calls."""
        self._prices = prices
        self._clock = clock or SystemClock()
        self._store: Store | None = None
        self._unsaved: dict[SpendId, SpendRow] = {}
        """What no batch has yet, reservations included."""
        self._batch: list[SpendRow] = []
        """What is being stored. It keeps its number until the store has it: a time-out does not say."""
        self._batch_id = BatchId(secrets.token_hex(8), 0)
        self._store_at = 0.0
        self._models: set[str] = set()
        self._models_day = ""
        self._noted: dict[str, Limit] = {}
        """The budgets that have spent something since the last `announce`, by scope."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    # -- prices ------------------------------------------------------------------------------------

    def is_priced(self, model: str) -> bool:
        """Return whether the cost of the model is known."""
        return canonical_model(model) in self._prices.prices

    def _dollars(self, model: str | None, used: Estimate | None, answer: ResponseReader | None = None) -> float | None:
        """Return what a call costs: at the price of the model that its answer names, else at the dearest one."""
        if used is None:
            return None
        models = {canonical_model(each) for each in (model or "", *used.others)}
        served, extras = used.served, dict[str, int]()
        if answer is not None:
            named = canonical_model(answer.model or "")
            if named in models and not answer.usage.names_models:
                models = {named}
            served, extras = {**served, **answer.served}, answer.usage.extras
        costs = [self._prices.cost_of_call(each, used.tokens, served, extras) for each in models]
        return max((each for each in costs if each is not None), default=None)

    # -- calls -------------------------------------------------------------------------------------

    def check_key(self, key: ClientKey, model: str | None = None, estimate: Estimate | None = None) -> None:
        """Raise `BudgetError` if the budget of the key is reached, or has no room for an estimate."""
        if (limit := limit_of_key(key)) is not None:
            self._check(limit, self._dollars(model, estimate), self._clock.now())

    def check_account(self, account: Account, model: str | None, estimate: Estimate | None = None) -> None:
        """Raise `OwnError` if the budget of the account is reached, or could not count a call of this model.

        With an estimate, also if there is no room for it now.
        """
        if (limit := limit_of_account(account)) is None:
            return
        self._check(limit, self._dollars(model, estimate), self._clock.now())
        if model is None or not self.is_priced(model):
            raise unpriced(model, f"account {account.name}")

    def reserve(self, record: CallRecord, key: ClientKey | None, account: Account, estimate: Estimate) -> Reservation:
        """Return the reservation of a call that is sent now. Raise as `check_account` if a budget refuses it."""
        now = self._clock.now()
        self.check_account(account, record.model, estimate)
        row = SpendRow(
            day=day_of(now),
            key="" if key is None else key.name,
            key_created_at=0.0 if key is None else key.created_at,
            account=account.name,
            model=self._counted_model(record.model or "", day_of(now)),
        )
        dollars = self._dollars(record.model, estimate)
        row = _used(row, estimate.tokens, dollars, is_estimated=True, is_billed=record.is_billed)
        of_key = None if key is None else limit_of_key(key)
        if of_key is not None:
            self._check(of_key, row.dollars, now)
        limits = tuple(each for each in (of_key, limit_of_account(account)) if each is not None)
        reservation = Reservation(row, estimate, record.is_billed, limits)
        self._open.add(reservation)
        self._reserved.add(row, row.dollars)
        self._enter(row)
        for limit in limits:
            self._wake(limit.scope)  # there may be room for one more
        return reservation

    def settle(self, reservation: Reservation, record: CallRecord, answer: ResponseReader | None = None) -> None:
        """Replace the reservation by what the call has used. No-op if that was done before."""
        if self._take_back(reservation):
            empty, is_billed = _empty(reservation.row), reservation.is_billed
            if record.tokens is not None:
                used = msgspec.structs.replace(reservation.estimate, tokens=record.tokens)
                record.dollars = self._dollars(record.model, used, answer)
            row = _used(empty, record.tokens, record.dollars, is_estimated=record.is_estimated, is_billed=is_billed)
            self._enter(row)
            self._count_settled(row)
            self._end(reservation)

    def release(self, reservation: Reservation) -> None:
        """Take the reservation back: the call has cost nothing. No-op if it was settled before."""
        if self._take_back(reservation):
            self._end(reservation)

    def _take_back(self, reservation: Reservation) -> bool:
        if reservation not in self._open:
            return False
        self._open.remove(reservation)
        self._reserved.add(reservation.row, -reservation.row.dollars)
        self._enter(reservation.row, -1)
        return True

    def _end(self, reservation: Reservation) -> None:
        for limit in reservation.limits:
            self._noted[limit.scope] = limit
            self._wake(limit.scope)

    def _enter(self, row: SpendRow, times: int = 1) -> None:
        known = self._unsaved.get(row.id) or _empty(row)
        self._unsaved[row.id] = known.plus(row, times)

    def _count_settled(self, row: SpendRow) -> None:
        self.settled.add(row, row.dollars)
        total = self._by_day.get(row.day) or SpendRow(day=row.day, key="", account="", model="")
        self._by_day[row.day] = total.plus(row)

    def _counted_model(self, name: str, day: str) -> str:
        """Return the name under which a model is counted."""
        if day != self._models_day:
            self._models, self._models_day = set(), day
        if name not in self._models:
            if len(self._models) >= MOST_MODELS:
                return OTHER_MODEL
            self._models.add(name)
        return name

    # -- budgets -----------------------------------------------------------------------------------

    def _check(self, limit: Limit, dollars: float | None, now: float) -> None:
        """Raise `BudgetError` if the budget is reached, or if what else is reserved leaves no room for the dollars."""
        spent, budget = self._spent(self.settled, limit, now), limit.budget
        self._announce(limit, spent, now)
        if spent > budget.dollars - DUST:
            for waiting in self._waiting.get(limit.scope, ()):
                _let_go(waiting)  # none of them will be let in
            what = f"the budget of the {limit.name}, {budget.text}, is reached (${spent:,.2f} spent)"
            resumes_at = budget.begins_again_at(now)
            if resumes_at is None:
                raise BudgetError(402, BUDGET_REACHED, f"{what}; ask for a key with another budget", limit.scope)
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(resumes_at))
            message = f"{what}; it continues at {when}"
            raise BudgetError(402, BUDGET_REACHED, message, limit.scope, retry_after=resumes_at - now)
        if not dollars:
            return
        reserved = self._spent(self._reserved, limit, now)
        if reserved > DUST and spent + reserved + dollars > budget.dollars + DUST:
            message = (
                f"the budget of the {limit.name}, {budget.text}, has no room beside the calls that run: ${spent:,.2f} "
                f"is spent, ${reserved:,.2f} reserved, and this call may cost ${dollars:,.2f}; try again when they end"
            )
            raise BudgetError(429, BUDGET_IN_USE, message, limit.scope, retry_after=RETRY_SECONDS)

    def _spent(self, balances: Balances, limit: Limit, now: float) -> float:
        if limit.key is None:
            return balances.of_account(limit.account, limit.budget, now)
        return balances.of_key(limit.key, limit.budget, now)

    def _announce(self, limit: Limit, spent: float, now: float) -> None:
        """Emit an event for each share that is reached and was not announced in this period."""
        budget, key, known = limit.budget, limit.key, self._announced.get(limit.scope)
        if known is not None and spent < WARNING_SHARE * budget.dollars:
            return  # as most calls
        period = budget.days(now), budget, 0.0 if key is None else key.created_at
        share = max((each for each in EVENT_NAMES if spent >= each * budget.dollars), default=0.0)
        if known is None and (key is None or now - key.created_at > DAY_SECONDS):
            known = (period, share)  # another process may have announced what was spent before
        if known is None or known[0] != period:
            known = (period, 0.0)
        self._announced[limit.scope] = (period, max(share, known[1]))
        if share > known[1] and self.emit is not None:
            fields: dict[str, object] = {"budget": budget.text, "spent": round(spent, 6), "share": share}
            fields["resumes_at"] = budget.begins_again_at(now)
            self.emit(Event(EVENT_NAMES[share], now, limit.scope, None, fields))

    def announce(self) -> None:
        """Announce the budgets that calls have nearly or wholly spent, and let those that wait for room look again."""
        noted, self._noted = self._noted, {}
        now = self._clock.now()
        for limit in noted.values():
            self._announce(limit, self._spent(self.settled, limit, now), now)
        for scope in list(self._waiting):
            self._wake(scope)  # the one that was woken before may have left

    async def room(self, error: BudgetError, deadline: float) -> None:
        """Wait until a call has ended that had reserved some of the budget. Raise the error if that is of no use."""
        if error.code != BUDGET_IN_USE or self._clock.now() >= deadline:
            raise error
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(error.scope, deque())
        queue.append(waiting)
        timer = self._clock.call_at(deadline, lambda: _let_go(waiting))
        try:
            await waiting
        finally:
            timer.cancel()
            if waiting in queue:
                queue.remove(waiting)

    def _wake(self, scope: str) -> None:
        """Let the first one that waits for room in the budget look again."""
        queue = self._waiting.get(scope)
        while queue:
            if _let_go(queue.popleft()):
                return

    # -- sums --------------------------------------------------------------------------------------

    def today(self) -> SpendRow:
        """Return the sum of this day (UTC), without what is reserved."""
        day = day_of(self._clock.now())
        return self._by_day.get(day) or SpendRow(day=day, key="", account="", model="")

    def unsaved(self) -> list[SpendRow]:
        """Return what is to be added to the sums of the store, so that they are those of settled calls."""
        reserved = [_empty(each.row).plus(each.row, -1) for each in self._open]
        return [row for row in summed([*self._batch, *self._unsaved.values(), *reserved]) if not row.is_empty]

    def use_store(self, store: Store) -> None:
        """Keep the sums in this store from now on, and begin with what it has: another engine may have led before."""
        self._store = store
        self.save()  # else it may be in the sums of the store, and in a batch as well
        rows = store.spend(by_model=False)
        self.settled, self._by_day = Balances(), {}
        for row in (*rows, *self.unsaved()):
            self._count_settled(row)

    def save_if_due(self, now: float) -> None:
        """Store the sums, if the last time is a while ago. `now` may be of any clock that is always the same."""
        if (self._batch or self._unsaved) and now >= self._store_at:
            self._store_at = now + (STORE_SECONDS if self.save() else OUTAGE_SECONDS)

    def save(self) -> bool:
        """Store the sums. Return False, and keep them, if that is not possible now."""
        if self._store is None:
            return True
        while self._batch or self._unsaved:
            if not self._batch:
                self._batch = [row for row in self._unsaved.values() if not row.is_empty]
                self._batch_id = BatchId(self._batch_id.writer, self._batch_id.number + 1)
                self._unsaved = {}
            try:
                self._store.add_spend(self._batch, self._batch_id)
            except (StoreError, LeadLost) as error:
                log.warning("what calls cost is stored later: %s", error)
                return False
            self._batch = []
        return True


def _let_go(waiting: asyncio.Future[None]) -> bool:
    """Wake the one that waits. Return False if it does not wait any more."""
    if waiting.done():
        return False
    waiting.set_result(None)
    return True


def _used(
    row: SpendRow, tokens: Tokens | None, dollars: float | None, *, is_estimated: bool, is_billed: bool
) -> SpendRow:
    """Return the row of one call."""
    return msgspec.structs.replace(
        row,
        requests=1,
        tokens=tokens or Tokens(),
        billed=dollars or 0.0 if is_billed else 0.0,
        imputed=0.0 if is_billed else dollars or 0.0,
        unpriced=int(dollars is None),
        estimated=int(is_estimated),
    )


def _empty(row: SpendRow) -> SpendRow:
    """Return a row with the same names, and nothing in it."""
    return SpendRow(day=row.day, key=row.key, key_created_at=row.key_created_at, account=row.account, model=row.model)
