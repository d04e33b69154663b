"""Snapshots of version 2, restored: the Governor behaves as it did when they were written.

The snapshots themselves are never rewritten, because stored homes hold such data. `--record` rewrites only the
behaviour beside each of them. `snapshot_v2` has every kind of gate in it; the others were taken in mid-run from
seeded worlds.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.recording import Recordings

from paceline import Limiter
from paceline.core import Governor, Granted, PollUsage, Snapshot, Ticket
from paceline.core.signals import RateLimited, Succeeded, Usage
from paceline.errors import InvalidSnapshot
from paceline.testing import VirtualClock

RECORDED = Path(__file__).parent / "recorded"
SNAPSHOTS = ("snapshot_v2", "snapshot_v2_world_mixed", "snapshot_v2_world_paced", "snapshot_v2_world_engine")
PASSED_SECONDS = (
    *(number / 4 for number in range(1, 25)),
    *range(7, 70, 3),
    90, 120, 180, 300, 301, 400, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 20000, 50000, 90000, 200000, 700000,
)  # fmt: skip
"""Dense where waves and spacings are, then up to the end of the longest window."""
REFUSED_EVERY = 7
"""In the lively continuation, so many grants apart, one is refused, so that limits go on being learnt."""


def read(name: str) -> Snapshot:
    return msgspec.json.decode((RECORDED / f"{name}.json").read_bytes(), type=Snapshot)


def tickets_in(name: str, part: str) -> dict[str, str]:
    """The narrowest scope of each ticket by its id, from the file as it is: restoring must not lose one."""
    stored = json.loads((RECORDED / f"{name}.json").read_bytes())
    return {record["ticket"]["id"]: record["ticket"]["scopes"][-1] for record in stored[part]}


def plain(value: object) -> Any:
    """As JSON holds it, without sentences: their wording is not what is recorded here."""
    return _without_prose(json.loads(msgspec.json.encode(value)))


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mark(key, each) for key, each in value.items()}
    return [_without_prose(each) for each in value] if isinstance(value, list) else value


def _mark(key: str, value: Any) -> Any:
    is_prose = key in ("detail", "notice") and isinstance(value, str) and " at its cap (" not in value
    return "<text>" if is_prose else _without_prose(value)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_recorded_snapshot_restores_to_the_recorded_state(name: str, recordings: Recordings) -> None:
    snapshot = read(name)
    governor = Governor.restore(snapshot, now=snapshot.at)

    state: dict[str, Any] = {
        "statuses": [plain(status) for status in governor.statuses(now=snapshot.at)],
        "why": {ticket: plain(governor.why(ticket, now=snapshot.at)) for ticket in tickets_in(name, "waiters")},
        "limits": governor.limits(),
        "cooldowns": governor.cooldowns(),
        "next_wakeup": governor.next_wakeup(),
    }

    assert None not in state["why"].values()
    recordings.compare(f"{name}_state", state)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_time_alone_has_the_recorded_effects_after_a_restore(name: str, recordings: Recordings) -> None:
    snapshot = read(name)
    governor = Governor.restore(snapshot, now=snapshot.at)

    passed = []
    for seconds in PASSED_SECONDS:
        effects = [plain(effect) for effect in governor.advance(now=snapshot.at + seconds)]
        passed.append({"after": seconds, "effects": effects, "next_wakeup": governor.next_wakeup()})

    recordings.compare(f"{name}_advance", passed)


def answer_to(ticket: str, grants: int) -> RateLimited | Succeeded:
    return RateLimited(ticket=ticket) if grants % REFUSED_EVERY == 0 else Succeeded(ticket=ticket, tokens=90)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_work_that_goes_on_after_a_restore_has_the_recorded_effects(name: str, recordings: Recordings) -> None:
    snapshot = read(name)
    governor = Governor.restore(snapshot, now=snapshot.at)
    scopes = tickets_in(name, "waiters")
    held = list(tickets_in(name, "slots"))
    grants = 0

    passed = []
    for seconds in PASSED_SECONDS:
        now = snapshot.at + seconds
        effects = governor.advance(now=now)
        for ticket in held[:2]:
            governor.release(ticket, now=now)
        held = held[2:]
        for effect in effects:
            if isinstance(effect, Granted):
                grants += 1
                governor.report(scopes[effect.ticket_id], answer_to(effect.ticket_id, grants), now=now)
                held.append(effect.ticket_id)
            elif isinstance(effect, PollUsage):
                governor.report(effect.scope, Usage(concurrent_sessions=len(held) % 3), now=now)
        passed.append({"after": seconds, "effects": [plain(effect) for effect in effects]})
    left = [plain(status) for status in governor.statuses(now=snapshot.at + PASSED_SECONDS[-1])]

    recordings.compare(f"{name}_work", {"passed": passed, "statuses": left})


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_recorded_snapshot_is_restored_again_from_what_it_becomes(name: str) -> None:
    snapshot = read(name)
    once = Governor.restore(snapshot, now=snapshot.at)
    stored = msgspec.json.encode(once.snapshot())
    twice = Governor.restore(msgspec.json.decode(stored, type=Snapshot), now=snapshot.at)

    assert twice.statuses(now=snapshot.at) == once.statuses(now=snapshot.at)
    for seconds in PASSED_SECONDS:
        now = snapshot.at + seconds
        assert twice.advance(now=now) == once.advance(now=now)


def test_a_snapshot_of_a_version_that_was_never_released_is_refused() -> None:
    snapshot = msgspec.structs.replace(read("snapshot_v2"), version=1)

    with pytest.raises(InvalidSnapshot, match=r"version 1 was never released.* or name a new home"):
        Governor.restore(snapshot, now=snapshot.at)


def test_new_tickets_meet_the_restored_gates(recordings: Recordings) -> None:
    snapshot = read("snapshot_v2")
    governor = Governor.restore(snapshot, now=snapshot.at)
    known = [status.scope for status in governor.statuses(now=snapshot.at)]
    scopes = [scope for scope in known if scope not in ("sessions", "runs", "anthropic", "anthropic/max-1")]

    verdicts = {
        scope: plain(governor.try_request(Ticket(id=f"new {scope}", scopes=("runs", scope)), now=snapshot.at))
        for scope in scopes
    }

    recordings.compare("snapshot_v2_new_tickets", verdicts)


async def test_a_limiter_goes_on_from_a_recorded_snapshot(recordings: Recordings) -> None:
    snapshot = read("snapshot_v2_limiter")
    clock = VirtualClock(snapshot.at)
    limiter = Limiter(max_parallel_sessions=4, max_parallel_runs=6, limits={"umans": 2}, clock=clock, restore=snapshot)

    restored = _limiter_state(limiter)
    limiter.release_run("r1")
    one_less = _limiter_state(limiter)
    limiter.release_session("s1")
    released = _limiter_state(limiter)
    await limiter.aclose()

    recordings.compare(
        "snapshot_v2_limiter_state", {"restored": restored, "run released": one_less, "session released": released}
    )


def _limiter_state(limiter: Limiter) -> dict[str, Any]:
    scopes = ("sessions", "runs", "umans", "anthropic", "anthropic/max-1")
    return {"status": plain(limiter.status()), **{scope: plain(limiter.scope_status(scope)) for scope in scopes}}
