"""What holds the runs of a scope to a pace: rates that are set, learnt or stated, and until when the next one waits."""

from collections.abc import Iterator

from paceline.core.gates.header_budget import HeaderBudget
from paceline.core.gates.rates import RATE_SPAN_SECONDS, Entry, LearnedRates, RateLimit
from paceline.core.gates.start_meters import SlowStart, StartSpacing
from paceline.core.state.scope import Scope
from paceline.core.values.status import SET_REASON, PaceStatus, RateStatus


def rate_statuses(scope: Scope, now: float) -> tuple[RateStatus, ...]:
    """Return the rates of the scope: those that were set first, then those that the provider showed."""
    return (*_set_rates(scope, now), *_stated(scope, now), *_learnt(scope, now))


def pace_status(scope: Scope, now: float) -> PaceStatus | None:
    """Return the learnt pace with the longest interval."""
    return max(_paces(scope, now), key=lambda pace: pace.interval, default=None)


def paced_until(scope: Scope, now: float) -> float | None:
    """Return until when the next run of the usual size waits for its pace; None where it does not."""
    return max((at for at in _waits(scope, now) if at > now), default=None)


def _set_rates(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(RateLimit)
    if gate is None:
        return
    recent = [entry for entry in gate.entries if entry.leaves_at > now]
    for kind, limit, used in (
        ("requests", gate.rate.rpm, sum(entry.runs for entry in recent)),
        ("tokens", gate.rate.tpm, sum(entry.tokens for entry in recent)),
    ):
        if limit is not None:
            until = recent[0].leaves_at if recent and used >= limit else None
            yield RateStatus(kind, "set", float(used), float(limit), SET_REASON, RATE_SPAN_SECONDS, None, until)


def _stated(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(HeaderBudget)
    for kind, part in (("requests", gate.requests), ("tokens", gate.tokens)) if gate is not None else ():
        if part is not None and part.limit is not None:
            span = part.limit / part.per_second if part.per_second else None
            used = max(0.0, part.limit - part.level(now))
            reason = "stated by the provider's headers"
            yield RateStatus(kind, "headers", used, part.limit, reason, span, part.since, part.resets_at)


def _learnt(scope: Scope, now: float) -> Iterator[RateStatus]:
    gate = scope.gates.get(LearnedRates)
    for rate in gate.rates.values() if gate is not None else ():
        kind = "tokens" if rate.counts_tokens else "requests"
        share = min(1.0, RATE_SPAN_SECONDS / max(1.0, now - rate.refused_at))
        limit = rate.per_second * RATE_SPAN_SECONDS
        reason = f"learnt from refusals for {rate.cause}"
        since, until = rate.since, rate.forgotten_at()
        yield RateStatus(kind, "learnt", rate.spent * share, limit, reason, RATE_SPAN_SECONDS, since, until)


def _paces(scope: Scope, now: float) -> Iterator[PaceStatus]:
    if (learned := scope.gates.get(LearnedRates)) is not None:
        for rate in learned.rates.values():
            reason = f"learnt from refusals for {rate.cause}"
            yield PaceStatus(rate.interval(scope.tokens.mean), reason, rate.since, rate.forgotten_at())
    if (spacing := scope.gates.get(StartSpacing)) is not None:
        yield PaceStatus(spacing.interval, "starts were refused as too many at once", spacing.since, None)
    if (slow := scope.gates.get(SlowStart)) is not None and slow.last_at is not None and now < slow.next_at:
        yield PaceStatus(slow.next_at - slow.last_at, "one by one after a pause", slow.last_at, slow.next_at)


def _waits(scope: Scope, now: float) -> Iterator[float]:
    mean = scope.tokens.mean
    for gate in scope.gates.in_order:
        match gate:
            case LearnedRates():
                yield from (rate.next_at(mean) for rate in gate.rates.values())
            case StartSpacing() | SlowStart():
                yield gate.next_at
            case HeaderBudget():
                for part, need in ((gate.requests, 1.0), (gate.tokens, max(1.0, mean))):
                    if part is not None and (at := part.ready_at(need, now)) is not None:
                        yield at
            case RateLimit():
                yield from _full_until(gate, now)


def _full_until(gate: RateLimit, now: float) -> Iterator[float]:
    recent: list[Entry] = [entry for entry in gate.entries if entry.leaves_at > now]
    if not recent:
        return
    is_full = gate.rate.rpm is not None and sum(entry.runs for entry in recent) >= gate.rate.rpm
    if is_full or (gate.rate.tpm is not None and sum(entry.tokens for entry in recent) >= gate.rate.tpm):
        yield recent[0].leaves_at
