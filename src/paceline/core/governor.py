"""The one object that answers "may this start now?". The only mutable object of the core.

Time comes in as an argument; verdicts and effects come out as values. Every shell (asyncio
limiter, engine, gateway, simulator) drives the same methods:

    verdict = governor.request(ticket, now=t)    # Granted, or Deferred and waiting
    governor.release(ticket.id, now=t)           # places go to those who wait, in order
    governor.report(scope, signal, now=t)        # what was learnt about the provider
    for effect in governor.advance(now=t): ...   # Granted, Expired, PollUsage, Event
    governor.next_wakeup()                       # call advance again by then
"""

import math
from collections import Counter
from collections.abc import Sequence

from paceline.core.decisions.admission import admit_ready, admit_unblocked, blocker, dequeue, enqueue, is_excess
from paceline.core.decisions.explanation import deferred, scope_status
from paceline.core.decisions.outcomes import add_tokens, on_canary_lost, on_success
from paceline.core.decisions.reactions import hold_account, react
from paceline.core.decisions.time_effects import move_to, wake
from paceline.core.gates.closures import ACCOUNT_HOLD, LOGIN_DOUBT, OUTAGE, Pause
from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.quota_window import QuotaGate
from paceline.core.gates.rates import LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartCap, StartSpacing
from paceline.core.limits import UNLIMITED
from paceline.core.signals import Signal
from paceline.core.state.ledger import Ledger
from paceline.core.state.scope import Scope, cooldown_seconds
from paceline.core.state.snapshot import Snapshot, lose_canaries, restore_ledger, take_snapshot, without_slots
from paceline.core.values.scopes import ScopePattern, canonical_scope, is_provider_scope, is_unnamed_model
from paceline.core.values.settings import (
    Cooldown,
    GovernorSettings,
    HeadroomMode,
    Rate,
    check_cooldown,
    check_headroom,
    check_rate,
)
from paceline.core.values.status import ScopeStatus
from paceline.core.values.tickets import Deferred, Effect, Granted, Reason, Ticket, Verdict, check_ticket
from paceline.errors import TicketConflict

LEARNT_GATES = (OUTAGE, Pause, SlowStart, StartSpacing, HeaderBudget, LearnedRates)
"""What a person undoes with `restore`, beside learnt limits: pauses and paces that the provider's answers brought."""


class Governor:
    """Admits tickets to scopes. Not thread-safe; never waits; never reads a clock."""

    def __init__(self, settings: GovernorSettings | None = None, *, now: float) -> None:
        self.ledger = Ledger(settings or GovernorSettings(), now)

    def _at(self, now: float) -> Ledger:
        """Return the ledger at this time, after what was due until then."""
        move_to(self.ledger, now)
        return self.ledger

    # -- tickets -----------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Grant the ticket now, or let it wait. Repeating a request returns the present answer and changes nothing."""
        ledger = self.ledger
        if ledger.now <= now < ledger.next_due:  # as `move_to`, without the call: requests and releases are hot
            ledger.now = now
        else:
            move_to(ledger, now)
        if ticket.since is not None or ticket.tokens is not None or ticket.weight is not None:
            check_ticket(ticket)
        lane = ledger.lanes.by_key.get(
            (ticket.scopes, ticket.group, ticket.priority, ticket.parent, ticket.spread)
        ) or ledger.lanes.lane(ticket, ledger.now)
        if ticket.id in ledger.slots or ticket.id in ledger.waiters:
            return self._standing_verdict(ticket)
        refusing = None
        if not lane.size:
            refusing = blocker(ledger, lane, ticket)
            if refusing is None:
                return ledger.enter(lane, ticket, 0.0)
        enqueue(ledger, lane, ticket, refusing)
        return deferred(ledger, lane, ticket, lane.size, refusing)

    def request_all(self, tickets: Sequence[Ticket], *, now: float) -> None:
        """Enqueue several tickets together, so that the order rule, not the order of the calls, decides which enter.

        Grants come as effects.
        """
        ledger = self._at(now)
        for ticket in tickets:
            self.check(ticket)
            _check_unused(ledger, ticket)
        if len({ticket.id for ticket in tickets}) < len(tickets):
            raise TicketConflict("two of these tickets have the same id; choose another id")
        asked = []
        for ticket in tickets:
            lane = ledger.lanes.lane(ticket, ledger.now)  # just before use, because empty lanes may be dropped
            enqueue(ledger, lane, ticket, lane.watching or lane.checks[0])
            asked.append(lane)
        admit_ready(ledger, [*dict.fromkeys(scope for lane in dict.fromkeys(asked) for scope in lane.scopes)])

    def try_request(self, ticket: Ticket, *, now: float) -> Verdict:
        """Grant the ticket now, or return why not. The ticket does not wait."""
        ledger = self._at(now)
        if ticket.since is not None or ticket.tokens is not None or ticket.weight is not None:
            check_ticket(ticket)
        lane = ledger.lanes.lane(ticket, ledger.now)
        if ticket.id in ledger.slots or ticket.id in ledger.waiters:
            return self._standing_verdict(ticket)
        if not lane.size and blocker(ledger, lane, ticket) is None:
            return ledger.enter(lane, ticket, 0.0)
        return deferred(ledger, lane, ticket, None)

    def _standing_verdict(self, ticket: Ticket) -> Verdict:
        """Return the present answer to a ticket that is requested again."""
        ledger = self.ledger
        slot = ledger.slots.get(ticket.id)
        known = slot.ticket if slot is not None else ledger.waiters[ticket.id].ticket
        if known != ticket:
            raise TicketConflict(f"ticket id {ticket.id!r} is in use for another ticket; choose another id")
        if slot is not None:
            return Granted(ticket.id, slot.token, slot.granted_at, 0.0, slot.expires_at)
        verdict = self.why(ticket.id, now=ledger.now)
        assert verdict is not None
        return verdict

    def check(self, ticket: Ticket) -> None:
        """Raise an error if the ticket's scopes or priority are invalid. Nothing is changed."""
        check_ticket(ticket)
        self.ledger.lanes.lane(ticket, self.ledger.now)

    def adopt(self, ticket: Ticket, *, now: float) -> Granted:
        """Count a slot that its holder already has, whatever the limits are. Used for holders found after a restart."""
        ledger = self._at(now)
        _check_unused(ledger, ticket)
        return ledger.adopt(ledger.lanes.accepted_lane(ticket, ledger.now), ticket)

    def cancel(self, ticket_id: str, *, now: float) -> None:
        """Stop waiting. No-op for a ticket that does not wait."""
        ledger = self._at(now)
        waiter = ledger.waiters.get(ticket_id)
        if waiter is not None and dequeue(ledger, waiter):
            admit_ready(ledger, list(waiter.lane.scopes))

    def release(self, ticket_id: str, *, now: float) -> bool:
        """Release the slot. Without an earlier report it counts as a success. Returns whether there was a slot."""
        ledger = self.ledger
        if ledger.now <= now < ledger.next_due:
            ledger.now = now
        else:
            move_to(ledger, now)
        slot = ledger.slots.get(ticket_id)
        if slot is None:
            return False
        hot: list[Scope] = []
        ledger.leave(slot, hot)
        if hot:
            if slot.reported:
                hot += on_canary_lost(ledger, slot)
            elif any(scope.learns for scope in hot):
                hot += on_success(ledger, slot.lane.scopes, slot)
            admit_ready(ledger, hot)
        return True

    def abandon(self, ticket_id: str, *, now: float) -> bool:
        """Remove the ticket from the queue or its slot, and learn nothing from it. Returns whether it had a slot."""
        self.cancel(ticket_id, now=now)
        if (slot := self.ledger.slots.get(ticket_id)) is not None:
            slot.reported = True
        return self.release(ticket_id, now=now)

    def renew(self, ticket_id: str, *, now: float) -> bool:
        """Extend the lease. Returns False if it is already lost."""
        ledger = self._at(now)
        slot = ledger.slots.get(ticket_id)
        if slot is None or slot.reclaim_at is not None:
            return False
        slot.expires_at = ledger.now + ledger.settings.slot_timeout if slot.ticket.leased else None
        return True

    # -- signals and time --------------------------------------------------------------------

    def report(self, scope: str, signal: Signal, *, now: float, origin: str | None = None) -> None:
        """Report a signal of the provider about a scope.

        A signal carries the ticket it came from, if any. The events that the report makes name `origin` as their unit.
        """
        ledger = self._at(now)
        ledger.origin = origin
        try:
            admit_ready(ledger, react(ledger, scope, signal))
        finally:
            ledger.origin = None

    def count_tokens(self, ticket_id: str, tokens: int, *, now: float) -> None:
        """Add tokens used by a live slot. No-op for unknown tickets."""
        if (slot := self._at(now).slots.get(ticket_id)) is not None:
            add_tokens(slot.lane.scopes, slot, tokens)

    def advance(self, *, now: float) -> list[Effect]:
        """Let time pass, and return everything the caller has to carry out."""
        move_to(self.ledger, now)
        return self.collect()

    def pass_time(self, *, now: float) -> None:
        """Carry out what is due. Its effects wait to be collected."""
        move_to(self.ledger, now)

    def wake_all(self, *, now: float) -> None:
        """Check every waiter again: the last resort of a driver whose waiters have no next wake-up."""
        ledger = self._at(now)
        for scope in [scope for scope in ledger.scopes.by_name.values() if scope.waiting]:
            wake(ledger, scope)
        admit_unblocked(ledger)

    def collect(self) -> list[Effect]:
        """Return what `advance` would, without time passing."""
        effects, self.ledger.effects = self.ledger.effects, []
        return effects

    @property
    def agenda(self) -> Ledger:
        """Return what a driver checks after every call: effects, and what is due when. It stays the same object."""
        return self.ledger

    def next_wakeup(self) -> float | None:
        """Return when to call `advance` at the latest; None while time alone changes nothing."""
        due = self.ledger.next_time()
        self.ledger.next_due = math.inf if due is None else due
        return due

    # -- questions ---------------------------------------------------------------------------

    def is_held(self, ticket_id: str) -> bool:
        """Return whether the ticket has a slot whose lease is not lost."""
        slot = self.ledger.slots.get(ticket_id)
        return slot is not None and slot.reclaim_at is None

    def ticket_of(self, ticket_id: str) -> Ticket | None:
        """Return the ticket as it was granted while it has a slot, also one whose lease is lost."""
        slot = self.ledger.slots.get(ticket_id)
        return slot.ticket if slot is not None else None

    def granted_at(self, ticket_id: str) -> float | None:
        """Return when the ticket got its slot; None where it has none."""
        slot = self.ledger.slots.get(ticket_id)
        return slot.granted_at if slot is not None else None

    def is_canary(self, ticket_id: str) -> bool:
        """Return whether the ticket is the canary of a closed window, so that others wait for its first answer."""
        slot = self.ledger.slots.get(ticket_id)
        scopes = slot.lane.scopes if slot is not None else ()
        return any(ticket_id in gate.canaries for scope in scopes for gate in scope.gates.probed)

    def is_excess(self, ticket_id: str, *, now: float) -> bool:
        """Return whether the slot is one too many since a limit fell. A session that has not begun should not begin."""
        ledger = self._at(now)
        slot = ledger.slots.get(ticket_id)
        return slot is not None and any(is_excess(ledger, scope, slot) for scope in slot.lane.scopes)

    def why(self, ticket_id: str, *, now: float) -> Deferred | None:
        """Return why a ticket waits, with its position; None if it does not wait."""
        ledger = self._at(now)
        waiter = ledger.waiters.get(ticket_id)
        if waiter is None:
            return None
        lane, position = waiter.lane, 1
        if waiter is not lane.head:
            position += sum((other.key, other.seq) < (waiter.key, waiter.seq) for other in lane.waiters())
        return deferred(ledger, lane, waiter.ticket, position)

    def waiting(self, *, now: float) -> Counter[tuple[str, Reason]]:
        """Count waiting tickets by the scope and the reason that bind the first of their lane."""
        ledger = self._at(now)
        found: Counter[tuple[str, Reason]] = Counter()
        for lane in dict.fromkeys(waiter.lane for waiter in ledger.waiters.values()):
            verdict = deferred(ledger, lane, lane.head.ticket, None)
            found[verdict.scope, verdict.reason] += lane.size
        return found

    def status(self, scope: str, *, now: float | None) -> ScopeStatus | None:
        """Return the status of the scope, or None if nothing was ever set, requested or learnt there.

        With `now=None` it is read as of the last call, and nothing changes: another thread may do that.
        """
        if now is not None:
            move_to(self.ledger, now)
        state = self.ledger.scopes.by_name.get(canonical_scope(scope))
        return scope_status(state, self.ledger.now) if state is not None else None

    def demand(self, scope: str) -> tuple[int, int | None]:
        """Return how many places are taken or waited for, and the effective limit: the status, for every call."""
        state = self.ledger.scopes.by_name.get(canonical_scope(scope))
        if state is None:
            return 0, None
        return state.used + state.waiting, None if state.cap == UNLIMITED else state.cap

    def statuses(self, *, now: float | None) -> list[ScopeStatus]:
        """Return the status of every scope; with `now=None` as `status` does."""
        if now is not None:
            move_to(self.ledger, now)
        return [scope_status(state, self.ledger.now) for state in list(self.ledger.scopes.by_name.values())]

    def reserve_reached(self, ticket_id: str, *, now: float) -> tuple[str, float] | None:
        """Return the window whose reserve the slot now uses, and its reset. A session that can resume should stop."""
        move_to(self.ledger, now)
        slot = self.ledger.slots.get(ticket_id)
        for scope in slot.lane.scopes if slot is not None else ():
            quota = scope.gates.get(QuotaGate)
            held = quota.reserve_reached(scope, self.ledger.now) if quota is not None else None
            if held is not None:
                return held.window.name, held.until
        return None

    # -- commands of a person ----------------------------------------------------------------

    def set_limit(self, scope: str, limit: int | None, *, now: float) -> None:
        """Set a scope's or pattern's limit by hand, and forget what was learnt there."""
        pattern = ScopePattern(scope)
        ledger = self._at(now)
        ledger.scopes.limits.set(pattern.text, limit)
        _apply_limits(ledger, pattern)

    def remove_limit(self, scope: str, *, now: float) -> None:
        """Make the scope unlimited: waiters enter, live slots stay counted, pauses stay."""
        pattern = ScopePattern(scope)
        ledger = self._at(now)
        ledger.scopes.limits.remove(pattern.text)
        _apply_limits(ledger, pattern)

    def reset_limit(self, scope: str, *, now: float) -> None:
        """Forget the limit that was set live, so that the settings apply again."""
        pattern = ScopePattern(scope)
        ledger = self._at(now)
        ledger.scopes.limits.reset_live(pattern.text)
        _apply_limits(ledger, pattern)

    def restore_limit(self, scope: str, *, now: float) -> None:
        """Return to the configured limit: forget what refusals taught, also rates and spacing, and end pauses."""
        pattern = ScopePattern(scope)
        ledger = self._at(now)
        for state in ledger.scopes.by_name.values():
            if pattern.matches(state.name):
                pause = state.gates.get(Pause)
                state.gates.drop(*LEARNT_GATES)
                if pause is not None and pause.until is not None:
                    ledger.emit("scope.resumed", state.name)
        _apply_limits(ledger, pattern)

    def get_limit(self, scope: str) -> int | None:
        """Return the configured limit of a scope, or of a pattern as it was set."""
        return self.ledger.scopes.limits.configured(ScopePattern(scope).text)

    def limits(self) -> dict[str, int]:
        """Return every configured limit, by scope or pattern."""
        return {text: limit for text, limit in self.ledger.scopes.limits.entries().items() if limit is not None}

    def ruling_limit(self, scope: str) -> tuple[str, bool] | None:
        """Return the entry that the scope's configured limit comes from, and whether it was set live."""
        return self.ledger.scopes.limits.ruling_entry(canonical_scope(scope))

    def set_rate(self, scope: str, rate: Rate | None, *, now: float) -> None:
        """Set the runs and tokens per minute of a scope or pattern live. None returns to the rate of the settings."""
        pattern = ScopePattern(scope)
        checked = None if rate is None else check_rate(rate, "rate")
        ledger = self._at(now)
        if checked is None:
            ledger.scopes.rates.reset_live(pattern.text)
        else:
            ledger.scopes.rates.set_live(pattern.text, checked)
        touched = _governed_scopes(ledger, pattern)
        for state in touched:
            found = ledger.scopes.rates.lookup(state.name)
            present = state.gates.get(RateLimit)
            if found is None:
                state.drop_gate(RateLimit)
            elif present is None:
                state.put_gate(RateLimit(found[1]))
            else:
                present.rate = found[1]
                state.refresh()
            ledger.lift_blocked(state)
            ledger.schedule(state)
        admit_ready(ledger, touched)

    def set_cooldown(self, scope: str, cooldown: Cooldown, *, now: float) -> None:
        """Set how long a released slot still counts. Slots that already cool keep their cooldown."""
        pattern = ScopePattern(scope)
        checked = check_cooldown(cooldown, "cooldown")
        ledger = self._at(now)
        ledger.scopes.cooldowns.set_live(pattern.text, checked)
        for state in ledger.scopes.by_name.values():
            state.cooldown_setting = ledger.scopes.cooldown_of(state.name)
            state.cools_by_account = state.is_provider and "/" not in state.name
            state.refresh()

    def get_cooldown(self, scope: str) -> float:
        """Return the present cooldown in seconds. For a pattern, return that of a new scope which matches it."""
        ledger = self.ledger
        text = ScopePattern(scope).text
        known = ledger.scopes.by_name.get(text)
        if known is not None:
            return known.cooldown
        return cooldown_seconds(is_provider_scope(text), ledger.scopes.cooldown_of(text), None)

    def cooldowns(self) -> dict[str, Cooldown]:
        """Return every configured cooldown, by scope or pattern."""
        return self.ledger.scopes.cooldowns.entries()

    def set_headroom(self, scope: str, mode: HeadroomMode, *, now: float) -> None:
        """Set how the limit of a scope, or of all that match a pattern, reacts. "off" lifts what refusals taught."""
        pattern = ScopePattern(scope)
        checked = check_headroom(mode, "headroom")
        ledger = self._at(now)
        ledger.scopes.modes.set_live(pattern.text, checked)
        for state in ledger.scopes.by_name.values():
            previous, state.mode = state.effective, ledger.scopes.mode_of(state.name)
            if state.mode == "off" and state.adaptive is not None:
                state.adaptive.clear()
            ledger.refresh(state)
            ledger.note_raised(state, previous)
        admit_ready(ledger, [*ledger.scopes.by_name.values()])

    def cap_starts(self, scope: str, cap: StartCap | None, *, now: float) -> None:
        """Admit no more sessions than the cap allows, until it is set again. Running sessions are not ended."""
        ledger = self._at(now)
        state = ledger.scope(canonical_scope(scope))
        if state.gates.get(StartCap) == cap:
            return
        if cap is None:
            state.drop_gate(StartCap)
        else:
            state.put_gate(cap)
        ledger.schedule(state)
        admit_ready(ledger, [state])

    def hold(self, scope: str, detail: str, *, now: float) -> None:
        """Admit nobody to the scope until a person lifts the hold."""
        ledger = self._at(now)
        admit_ready(ledger, hold_account(ledger, ledger.scope(canonical_scope(scope)), detail))

    def lift_hold(self, scope: str, *, now: float) -> None:
        """Lift a hold, whether it was set by hand or by a signal."""
        ledger = self._at(now)
        state = ledger.scope(canonical_scope(scope))
        state.drop_gate(ACCOUNT_HOLD, LOGIN_DOUBT)
        ledger.lift_blocked(state)
        admit_ready(ledger, [state])

    def ask_login_again(self, scope: str, *, now: float) -> bool:
        """Let one session try a held login now: it may have been renewed. Returns whether one will."""
        ledger = self._at(now)
        state = ledger.scopes.by_name.get(canonical_scope(scope))
        doubt = None if state is None else state.gates.closure(LOGIN_DOUBT)
        if state is None or doubt is None or not doubt.ask_again(now):
            return False
        ledger.schedule(state)
        admit_ready(ledger, [state])
        return True

    # -- restart -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the whole state as a value that can be stored."""
        return take_snapshot(self.ledger)

    @classmethod
    def restore(
        cls, snapshot: Snapshot, *, now: float, settings: GovernorSettings | None = None, keep_slots: bool = True
    ) -> "Governor":
        """Restore a Governor from a snapshot. New `settings` replace the old; learnt values stay.

        Without `keep_slots` nobody has a slot or waits: the caller finds out who still runs.
        """
        governor = cls.__new__(cls)
        governor.ledger = restore_ledger(snapshot if keep_slots else without_slots(snapshot), settings)
        if not keep_slots:
            lose_canaries(governor.ledger, now)
        move_to(governor.ledger, now)
        admit_unblocked(governor.ledger)
        return governor


def _check_unused(ledger: Ledger, ticket: Ticket) -> None:
    if ticket.id in ledger.slots or ticket.id in ledger.waiters:
        raise TicketConflict(f"ticket id {ticket.id!r} is in use; choose another id")


def _governs(pattern: ScopePattern, scope: str) -> bool:
    """Return whether the limit of the scope may come from the pattern; a model without a name has the strictest."""
    if pattern.matches(scope):
        return True
    return is_unnamed_model(scope) and pattern.matches_account_of(scope.rpartition("/")[0])


def _governed_scopes(ledger: Ledger, pattern: ScopePattern) -> list[Scope]:
    """Return the scopes that the pattern governs. The scope of an exact one is made if there is none."""
    ledger.lanes.forget_empty()
    found = [scope for scope in ledger.scopes.by_name.values() if _governs(pattern, scope.name)]
    return found or ([ledger.scope(pattern.text)] if pattern.is_exact else [])


def _apply_limits(ledger: Ledger, pattern: ScopePattern) -> None:
    touched = _governed_scopes(ledger, pattern)
    for scope in touched:
        previous = scope.effective
        scope.configured = ledger.scopes.limits.configured(scope.name)
        if scope.adaptive is not None:
            scope.adaptive.clear()
        scope.platform = None
        scope.refresh()
        ledger.lift_blocked(scope)
        ledger.schedule(scope)
        if scope.effective != previous:
            ledger.emit("scope.limit_set", scope.name, limit=scope.effective, previous=previous)
    admit_ready(ledger, touched)
