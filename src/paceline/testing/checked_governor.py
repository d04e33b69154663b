"""A Governor under test: every call goes through here, and a broken promise raises.

The checkers see what any caller sees (verdicts, effects, status and why) and compare it with their own ledger. They
never read the state of the Governor. Reasons and the order rule are computed again in the simplest way.

Within a lane the rule is exact: smallest key first, then arrival. Between lanes and groups it is checked only where
the answer is certain: in calm worlds, with the Governor's own count of what each group has used, and while no ticket
has waited for `ageing` or longer. (Overdue tickets may have place claims, and the ledger cannot know from which moment
a ticket counts as passed over.) Place claims are checked with the Governor's own list of them.
"""

import math
from typing import NoReturn, get_args

from paceline.core import Deferred, Governor, GovernorSettings, Granted, Snapshot, Ticket
from paceline.core.signals import AnySignal, Budget, Succeeded, Unreachable, Usage
from paceline.core.values.scopes import is_provider_scope, scope_reached
from paceline.core.values.tickets import Effect, Expired, PollUsage, Reason, Verdict
from paceline.events import FIELDS, Event
from paceline.testing.gates import SLACK, ExpectedLedger, Gates, Held, Waiting, group_of, lane_of

REASONS = frozenset(get_args(Reason))
HELPED_BY_TIME = frozenset({"paused", "cooldown", "usage_gate", "window_closed", "pacing", "reserve", "unreachable"})


RELATIVE_SLACK = 1e-6
RECORD_EVERY = 4
"""Releases per snapshot: a snapshot costs more than the release itself."""
GroupUse = tuple[float, int]
"""Accrued slot-seconds and live slots of one group."""


def use_by_group(snapshot: Snapshot) -> dict[str, GroupUse]:
    """Return the use of each group in the snapshot, by the group names of the ledger."""
    return {
        group.name if isinstance(group.name, str) else f"priority {group.name}": (
            group.accrued + group.live * (snapshot.at - group.accrued_at),
            group.live,
        )
        for group in snapshot.groups
    }


MOST_WAKEUPS = 20_000


class BrokenPromise(AssertionError):
    """The Governor did something else than it promises."""


class CheckedGovernor:
    """A Governor with the same verbs, whose effects are checked after every call.

    With `is_calm` only configured limits and cooldowns bind. Which ticket could enter is then plain arithmetic, and the
    checks of order and idleness are exact.
    """

    def __init__(self, governor: Governor, settings: GovernorSettings, now: float, *, is_calm: bool = False) -> None:
        self.governor = governor
        self.settings = settings
        self.is_calm = is_calm
        self.expected = ExpectedLedger(settings.limits)
        self.gates = Gates(settings, BrokenPromise)
        self._releases = 0
        self._use: dict[str, GroupUse] | None = None
        """What each group has used, as in the snapshot before a release. It is valid for one call only."""
        self._place_claims: tuple[str, ...] = ()
        """The tickets for which places are kept, as in the same snapshot."""
        self.polls: list[str] = []
        self.granted = 0
        self.grants_from_queue = 0
        self.expired: list[str] = []
        self._cooldowns = dict(settings.cooldowns)
        self._wall = now
        self._set_back = 0.0

    # -- time ---------------------------------------------------------------------------------------

    @property
    def wall(self) -> float:
        """Return the wall time of the last call."""
        return self._wall

    @property
    def elapsed(self) -> float:
        """Return the time that really passed. It does not go back when the wall clock does."""
        return self._wall + self._set_back

    def move_clock(self, now: float) -> None:
        """Set the wall clock. A step back means that the clock was set; no time was undone."""
        wakeup = self.governor.next_wakeup()
        slept = now - wakeup if wakeup is not None and wakeup < now else 0.0
        for held in self.expected.held.values():
            held.slept += slept
        if now < self._wall:
            self._set_back += self._wall - now
        self._wall = now
        self.collect()

    def run_until(self, until: float) -> None:
        """Move time forward, and call the Governor at every wake-up that it asks for."""
        for _ in range(MOST_WAKEUPS):
            wakeup = self.governor.next_wakeup()
            if wakeup is None or wakeup > until:
                self.move_clock(until)
                return
            self.move_clock(max(wakeup, self._wall))
        self.fail(f"asked to be woken {MOST_WAKEUPS} times before {until}")

    # -- the verbs ------------------------------------------------------------------------------------

    def request(self, ticket: Ticket) -> Verdict:
        return self._ask(ticket, self.governor.request(ticket, now=self._wall), waits=True)

    def try_request(self, ticket: Ticket) -> Verdict:
        return self._ask(ticket, self.governor.try_request(ticket, now=self._wall), waits=False)

    def _ask(self, ticket: Ticket, verdict: Verdict, *, waits: bool) -> Verdict:
        if verdict.ticket_id != ticket.id:
            self.fail(f"the verdict on {ticket.id} names {verdict.ticket_id}")
        if isinstance(verdict, Granted):
            self._check_newcomer(ticket)
            self._enter(ticket, verdict, waited=0.0)
        elif waits:
            self.expected.enqueue(ticket, self.elapsed, self._elapsed_since(ticket), self.settings.ageing)
        self.collect()
        return verdict

    def _elapsed_since(self, ticket: Ticket) -> float:
        if ticket.since is None or ticket.since > self._wall:
            return self.elapsed
        return ticket.since + self._set_back

    def ask_again(self, ticket: Ticket) -> Verdict:
        """Repeat the request of a held or waiting ticket. It must return the present answer and change nothing."""
        verdict = self.governor.request(ticket, now=self._wall)
        held = self.expected.held.get(ticket.id)
        if held is not None and not _is_same_grant(verdict, held.granted):
            self.fail(f"asked again, {ticket.id} got {verdict!r} instead of its standing {held.granted!r}")
        if held is None and not isinstance(verdict, Deferred):
            self.fail(f"asked again, the waiting {ticket.id} got {verdict!r}")
        self.collect()
        return verdict

    def release(self, ticket_id: str) -> None:
        held = self.expected.held.get(ticket_id)
        if held is not None:
            self._record_before_release(held.ticket)
        self.governor.release(ticket_id, now=self._wall)
        if held is not None:
            if not held.failed:
                self.gates.note_canary_passed(tuple(filter(None, (ticket_id, held.ticket.parent))))
                self.gates.note_answer(held.ticket.scopes)
            self._leave(held)
        self.collect()
        self._use = None

    def cancel(self, ticket_id: str) -> None:
        self.governor.cancel(ticket_id, now=self._wall)
        if ticket_id in self.expected.waiting:
            self.expected.dequeue(ticket_id)
        self.collect()

    def renew(self, ticket_id: str) -> bool:
        renewed = self.governor.renew(ticket_id, now=self._wall)
        held = self.expected.held.get(ticket_id)
        if renewed and (held is None or held.lost_at is not None):
            self.fail(f"renewed the lease of {ticket_id}, which is {'unknown' if held is None else 'lost'}")
        if not renewed and held is not None and held.lost_at is None:
            self.fail(f"refused to renew the live lease of {ticket_id}")
        if renewed and held is not None:
            held.renewed_at = self.elapsed
        self.collect()
        return renewed

    def report(self, scope: str, signal: AnySignal) -> None:
        held = self.expected.held.get(signal.ticket or "")
        session = held.ticket.parent if held is not None else None
        self.gates.note_report(scope, signal, session, self.elapsed, self._wall)
        if not isinstance(signal, Usage | Budget):
            if held is not None:
                held.failed = not isinstance(signal, Succeeded)
            if not isinstance(signal, Unreachable):
                path = scope_reached(scope, signal.reach)
                self.gates.note_answer((path, scope_reached(path, "account")) if held is None else held.ticket.scopes)
        self.governor.report(scope, signal, now=self._wall)
        self.collect()

    def set_limit(self, scope: str, limit: int | None) -> None:
        self.expected.set_limit(scope, limit)
        self.governor.set_limit(scope, limit, now=self._wall)
        self.collect()

    def remove_limit(self, scope: str) -> None:
        self.expected.remove_limit(scope)
        self.governor.remove_limit(scope, now=self._wall)
        self.collect()

    def set_cooldown(self, scope: str, seconds: float) -> None:
        self._cooldowns[scope] = seconds
        self.governor.set_cooldown(scope, seconds, now=self._wall)
        self.collect()

    def lift_hold(self, scope: str) -> None:
        self.gates.held.discard(scope)
        self.gates.logins.pop(scope, None)
        self.governor.lift_hold(scope, now=self._wall)
        self.collect()

    # -- effects --------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Check the new effects against the ledger. Afterwards no ticket may wait that could enter."""
        for effect in self.governor.advance(now=self._wall):
            self._take(effect)
        wakeup = self.governor.next_wakeup()
        if wakeup is not None and wakeup <= self._wall:
            self.fail(f"asks to be woken at {wakeup}, which is not after now ({self._wall})")
        if self.is_calm:
            self._check_nobody_is_kept_waiting()

    def _take(self, effect: Effect) -> None:
        match effect:
            case Granted():
                self._take_grant(effect)
            case Expired():
                self._take_expiry(effect)
            case PollUsage(scope=scope):
                someone_waits = any(scope in waiting.ticket.scopes for waiting in self.expected.waiting.values())
                self.gates.note_poll(scope, self.elapsed, someone_waits)
                self.polls.append(scope)
            case Event():
                self._take_event(effect)

    def _take_grant(self, granted: Granted) -> None:
        waiting = self.expected.waiting.get(granted.ticket_id)
        if waiting is None:
            self.fail(f"granted {granted.ticket_id}, which does not wait")
        self._check_from_queue(waiting)
        self.expected.dequeue(granted.ticket_id)
        for scope in waiting.ticket.scopes:
            limit = self.limit_of(scope) if scope in self.gates.usage else None
            if limit is not None and self.expected.places_needed(waiting.ticket, scope):
                self.gates.check_gated_grant(waiting.ticket, scope, limit, self.elapsed)
        self.grants_from_queue += 1
        self._enter(waiting.ticket, granted, waited=self.elapsed - waiting.enqueued_at)

    def _enter(self, ticket: Ticket, granted: Granted, waited: float) -> None:
        if ticket.id in self.expected.held:
            self.fail(f"granted {ticket.id}, which already holds a slot")
        if granted.token <= self.expected.last_token:
            self.fail(f"fencing token {granted.token} of {ticket.id} is not above {self.expected.last_token}")
        if granted.granted_at != self._wall or abs(granted.waited - waited) > SLACK:
            self.fail(f"{granted!r} should have been granted at {self._wall} after {waited} s")
        if granted.expires_at is None or abs(granted.expires_at - self._wall - self.settings.slot_timeout) > SLACK:
            self.fail(f"{granted!r} should expire {self.settings.slot_timeout} s after {self._wall}")
        self._check_room(ticket)
        self.gates.check_grant(ticket, self.elapsed)
        self.gates.note_grant([scope for scope in ticket.scopes if self.expected.places_needed(ticket, scope)])
        self.expected.hold(ticket, granted, self.elapsed)
        self.granted += 1

    def _check_room(self, ticket: Ticket) -> None:
        """Check that a grant has room in each scope. Only a run that uses its session's place may enter a full one."""
        for scope in ticket.scopes:
            limit = self.limit_of(scope)
            if limit is None:
                continue
            occupied = self.expected.occupied()[scope]
            if self.expected.places_needed(ticket, scope):
                occupied += 1 + self.expected.cooling_in(scope, self.elapsed + SLACK)
                if occupied > limit:
                    self.fail(f"scope {scope} has {occupied} live slots over its limit of {limit}")
            elif self.expected.is_excess(ticket.parent, scope, limit):
                self.fail(f"{ticket.id} entered {scope}, of which its session is too much since the limit is {limit}")

    def _take_expiry(self, expired: Expired) -> None:
        held = self.expected.held.get(expired.ticket_id)
        if held is None or held.lost_at is not None:
            self.fail(f"expired {expired.ticket_id}, which holds no live lease")
        if self.elapsed - held.renewed_at < self.settings.slot_timeout - SLACK:
            self.fail(f"expired {expired.ticket_id}, renewed {self.elapsed - held.renewed_at:.3f} s ago")
        if abs(expired.reclaimed_at - self._wall - self.settings.lost_grace) > SLACK:
            self.fail(f"{expired!r} leaves a grace other than {self.settings.lost_grace} s at {self._wall}")
        held.lost_at = self.elapsed
        session = self.expected.held.get(held.ticket.parent or "")
        if session is not None:
            session.run_lost_at = self.elapsed
        self.expired.append(expired.ticket_id)

    def _take_event(self, event: Event) -> None:
        if sorted(event.fields) != sorted(FIELDS[event.name]):
            self.fail(f"event {event.name} carries {sorted(event.fields)} instead of {sorted(FIELDS[event.name])}")
        self.gates.note_event(event, self.elapsed)
        if event.name == "slot.reclaimed":
            self._take_reclaim(str(event.fields["ticket"]))

    def _take_reclaim(self, ticket_id: str) -> None:
        held = self.expected.held.get(ticket_id)
        if held is None or held.lost_at is None:
            self.fail(f"reclaimed {ticket_id}, which is not lost")
        if self.elapsed - held.lost_at < self.settings.lost_grace - SLACK:
            self.fail(f"reclaimed {ticket_id} only {self.elapsed - held.lost_at:.3f} s after it was lost")
        self._leave(held)

    def _leave(self, held: Held) -> None:
        self.expected.let_go(held.ticket.id, self.elapsed)
        session = self.expected.held.get(held.ticket.parent or "")
        if session is not None and held.lost_at is None:
            session.renewed_at = self.elapsed  # its run lived until now
        self.gates.note_canary_gone(held.ticket.id)
        if not self._has_family(held.ticket):
            for scope in held.ticket.scopes:
                if (seconds := self._cooldown_in(scope, held.ticket)) > 0 and self.limit_of(scope) is not None:
                    self.expected.cool(scope, self.elapsed + seconds)

    def _has_family(self, ticket: Ticket) -> bool:
        """Return whether a session and its runs share a place. Not every release frees it, so nothing need cool."""
        return ticket.parent is not None or "sessions" in ticket.scopes

    # -- audits, which cost more -------------------------------------------------------------------------

    def audit(self) -> None:
        """Compare the whole status of the Governor with the ledger."""
        self.expected.forget_cooled(self.elapsed)
        scopes = {scope for held in self.expected.held.values() for scope in held.ticket.scopes}
        scopes |= {scope for waiting in self.expected.waiting.values() for scope in waiting.ticket.scopes}
        for scope in scopes:
            self._audit_scope(scope)
        for held in self.expected.held.values():
            self._audit_lease(held)
        for waiting in self.expected.waiting.values():
            why = self.governor.why(waiting.ticket.id, now=self._wall)
            if why is None:
                self.fail(f"{waiting.ticket.id} waits and nothing says why")
            self._check_reason(waiting, why)

    def _audit_scope(self, scope: str) -> None:
        status = self.governor.status(scope, now=self._wall)
        if status is None:
            self.fail(f"scope {scope} is in use and has no status")
        queued = sum(1 for waiting in self.expected.waiting.values() if scope in waiting.ticket.scopes)
        shown, booked = (status.in_flight, status.queued), (self.expected.occupied()[scope], queued)
        if shown != booked:
            self.fail(f"scope {scope} shows {shown} in flight and queued, the ledger has {booked}")
        if self.is_calm and status.limit != self.expected.configured(scope):
            self.fail(f"scope {scope} shows a limit of {status.limit}, set was {self.expected.configured(scope)}")

    def _audit_lease(self, held: Held) -> None:
        longest = self.settings.slot_timeout + self.settings.watchdog_interval + held.slept
        if any(run.ticket.parent == held.ticket.id and run.lost_at is None for run in self.expected.held.values()):
            return  # a session lives as long as its runs do
        if held.lost_at is None and self.elapsed - max(held.renewed_at, held.run_lost_at) > longest + SLACK:
            self.fail(f"{held.ticket.id} was not renewed for {longest} s and nobody noticed")
        if held.lost_at is not None and self.elapsed - held.lost_at > self.settings.lost_grace + SLACK:
            self.fail(f"{held.ticket.id} was lost at {held.lost_at} and never reclaimed")

    # -- reasons ----------------------------------------------------------------------------------------

    def _check_reason(self, waiting: Waiting, why: Deferred) -> None:
        """Check that a reason is one of the contract, names a scope of the ticket, and agrees with the ledger."""
        ticket = waiting.ticket
        if why.ticket_id != ticket.id or why.reason not in REASONS or not why.detail:
            self.fail(f"{ticket.id} waits because of {why!r}, which is no answer")
        if why.scope not in ticket.scopes:
            self.fail(f"{ticket.id} is said to wait for {why.scope}, which is not among its scopes")
        if why.position is None or why.position < 1:
            self.fail(f"{ticket.id} waits at position {why.position}")
        if why.reason in HELPED_BY_TIME and not self._has_prospect(why):
            self.fail(f"{ticket.id} waits for time to pass ({why.reason}) and nothing will wake it: {why!r}")
        if not self._is_backed(waiting, why):
            self.fail(f"{ticket.id} waits because of {why.reason} in {why.scope} ({why.detail}), which is not so")

    def _has_prospect(self, why: Deferred) -> bool:
        """Return whether the Governor will decide again, by when it said. A usage reading may come at any time."""
        wakeup = self.governor.next_wakeup()
        if wakeup is None or why.retry_at is None or why.reason == "usage_gate":
            return wakeup is not None
        return math.isfinite(why.retry_at) and wakeup <= why.retry_at + SLACK

    def _is_backed(self, waiting: Waiting, why: Deferred) -> bool:
        status = self.governor.status(why.scope, now=self.wall)
        match why.reason:
            case "limit" | "platform_limit":
                return self._lacks_room(waiting, why.scope) or self._may_be_kept(waiting)
            case "cooldown":
                return status is not None and status.cooling > 0
            case "paused" | "unreachable":
                return status is not None and status.paused
            case "window_closed":
                return status is not None and status.window is not None
            case "usage_gate":
                return why.scope in self.gates.usage
            case "held":
                return why.scope in self.gates.held
            case "queue_order":
                return self._could_enter(waiting) and self._may_be_kept(waiting)
            case _:
                return True

    def _lacks_room(self, waiting: Waiting, scope: str) -> bool:
        """Return whether the scope is full for this ticket. A run in its session waits only if that is excess."""
        limit = self.limit_of(scope)
        if limit is None:
            return False
        if not self.expected.places_needed(waiting.ticket, scope):
            return self.expected.is_excess(waiting.ticket.parent, scope, limit)
        occupied = self.expected.occupied()[scope]
        return occupied >= limit or occupied + self.cooling_in(scope) >= limit

    def _may_be_kept(self, waiting: Waiting) -> bool:
        """Return whether a place may be kept for another ticket that shares a scope and has waited for `ageing`."""
        others = (each for each in self.expected.waiting.values() if each is not waiting and self._is_overdue(each))
        return any(set(other.ticket.scopes) & set(waiting.ticket.scopes) for other in others)

    # -- the order --------------------------------------------------------------------------------------

    def _record_before_release(self, released: Ticket) -> None:
        """Record the use of the groups as the release will leave it. Not always: a snapshot is expensive."""
        self._releases += 1
        if not self.is_calm or self._releases % RECORD_EVERY:
            return
        snapshot = self.governor.snapshot()
        self._use = use_by_group(snapshot)
        self._place_claims = snapshot.claims
        accrued, live = self._use[group_of(released)]
        self._use[group_of(released)] = accrued, live - 1

    def _check_newcomer(self, ticket: Ticket) -> None:
        """Check that a new ticket enters at once only if no ticket of its lane waits."""
        ahead = self.expected.lanes.get(lane_of(ticket))
        if ahead:
            self.fail(f"{ticket.id} entered past {ahead[0].ticket.id}, which waits in the same lane")

    def _check_from_queue(self, chosen: Waiting) -> None:
        lane = self.expected.lanes[lane_of(chosen.ticket)]
        if lane[0] is not chosen and not self._is_overdue(chosen):
            self.fail(f"{chosen.ticket.id} entered before {lane[0].ticket.id}, which is ahead in its lane")
        if not self.is_calm:
            return
        if self._use is not None:
            self._check_place_claims(chosen)
        if not any(self._is_overdue(waiting) for waiting in self.expected.waiting.values()):
            self._check_between_lanes(chosen)

    def _is_overdue(self, waiting: Waiting) -> bool:
        """Return whether places may be kept for the ticket: it has waited for at least `ageing`."""
        return waiting.enqueued_at <= self.elapsed - self.settings.ageing + SLACK

    def _check_between_lanes(self, chosen: Waiting) -> None:
        rivals = [head for head in self.expected.heads() if head is not chosen and self._could_enter(head)]
        group = group_of(chosen.ticket)
        for rival in rivals:
            if group_of(rival.ticket) == group and (rival.key, rival.arrival) < (chosen.key - SLACK, chosen.arrival):
                self.fail(f"{chosen.ticket.id} entered before {rival.ticket.id}, older in the same group")
        self._check_between_groups(group, {group_of(rival.ticket) for rival in rivals})

    def _check_between_groups(self, chosen: str, rivals: set[str]) -> None:
        if self._use is None:
            return
        mine = self._use_of(chosen)
        for rival in rivals - {chosen}:
            theirs = self._use_of(rival)
            if theirs < mine - RELATIVE_SLACK * max(1.0, abs(mine)):
                self.fail(f"group {chosen} ({mine}) went before group {rival} ({theirs}), which has had less")
        accrued, live = self._use[chosen]
        self._use[chosen] = accrued, live + 1

    def _use_of(self, group: str) -> float:
        assert self._use is not None
        accrued, live = self._use[group]
        weight = 2.0 ** self.expected.priorities[group]
        return (accrued + live * self.expected.mean_seconds()) / weight

    def _could_enter(self, waiting: Waiting) -> bool:
        """Return whether every scope of the ticket has room (calm worlds have no other gates)."""
        return not any(self._lacks_room(waiting, scope) for scope in waiting.ticket.scopes)

    def _check_nobody_is_kept_waiting(self) -> None:
        """Check that no ticket waits while there is room for it."""
        for head in self.expected.heads():
            if self._could_enter(head) and not self._may_be_kept(head):
                self.fail(f"{head.ticket.id} waits though there is room in all of its scopes")

    def _check_place_claims(self, chosen: Waiting) -> None:
        """Check that places are kept only for overdue tickets, and that others leave one for each of them."""
        for ticket_id in self._place_claims:
            claimant = self.expected.waiting.get(ticket_id)
            if claimant is not None and not self._is_overdue(claimant):
                self.fail(f"a place is kept for {ticket_id}, which has not waited for long")
        if chosen.ticket.id not in self._place_claims:
            for scope in chosen.ticket.scopes:
                self._check_places_are_left(chosen, scope)

    def _check_places_are_left(self, chosen: Waiting, scope: str) -> None:
        limit = self.limit_of(scope)
        if limit is None or not self.expected.places_needed(chosen.ticket, scope):
            return
        waiting = self.expected.waiting
        kept = sum(
            1 for claimant in self._place_claims if claimant in waiting and scope in waiting[claimant].ticket.scopes
        )
        if limit - self.expected.occupied()[scope] - 1 < kept:
            self.fail(f"{chosen.ticket.id} took a place in {scope} that was kept for one of {self._place_claims}")

    def limit_of(self, scope: str) -> int | None:
        """Return the effective limit: in calm worlds from the ledger, else as the Governor reports it."""
        if self.is_calm:
            return self.expected.configured(scope)
        status = self.governor.status(scope, now=self._wall)
        return None if status is None else status.limit

    def cooldown_of(self, scope: str) -> float:
        """Return the cooldown of the scope, else of its path, else the default. The user's own scopes have none."""
        if not is_provider_scope(scope):
            return 0.0
        while scope not in self._cooldowns and "/" in scope:
            scope = scope.rpartition("/")[0]
        cooldown = self._cooldowns.get(scope, self.settings.cooldown)
        assert cooldown != "auto"  # a learned cooldown cannot be predicted; the World sets seconds
        return cooldown

    def _cooldown_in(self, scope: str, ticket: Ticket) -> float:
        """Return how long a slot of the ticket cools there: in the places of a whole provider as in its account."""
        accounts = (name for name in ticket.scopes if name.count("/") == 1 and name.startswith(f"{scope}/"))
        return self.cooldown_of(next(accounts, scope))

    def cooling_in(self, scope: str) -> int:
        """Return how many released places may still count. For places shared with runs only the Governor knows."""
        if self.is_calm:
            return self.expected.cooling_in(scope, self.elapsed - SLACK)
        status = self.governor.status(scope, now=self._wall)
        return 0 if status is None else status.cooling

    def fail(self, message: str) -> NoReturn:
        raise BrokenPromise(message)


def _is_same_grant(verdict: Verdict, granted: Granted) -> bool:
    """Return whether two grants are the same slot. Its lease may have been renewed and the clock set back meanwhile."""
    return isinstance(verdict, Granted) and verdict.token == granted.token
