"""Campaigns with several accounts: which account a unit runs on."""

import msgspec

from paceline.core import Deferred
from paceline.executors.interface import Launch
from paceline.simulation.agent_transcripts import (
    answer,
    done,
    init,
    rejected,
    warned,
)
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, MAX_1, NOW, EngineHarness

MINUTE = 60.0
RESET = NOW + 2 * HOUR


def session_of(launch: Launch) -> str:
    return "talk-" + launch.env["PACELINE_UNIT"].rpartition("/")[2]


def works(launch: Launch, seconds: float = MINUTE) -> Run:
    """A conversation that answers at once and is done after a while."""
    session = session_of(launch)
    return Run(stdout=init(session) + answer(session), later=((seconds, done(session)),), seconds=seconds)


class Window:
    """An account's quota: `left` sessions are served, then it is closed until the reset, when it is full again."""

    def __init__(self, left: int, resets_at: float = RESET, *, refill: int = 10_000, after: float = 10.0) -> None:
        self.harness: EngineHarness | None = None
        self.left = left
        self.resets_at = resets_at
        self._refill = refill
        self._after = after

    def __call__(self, launch: Launch) -> Run:
        assert self.harness is not None
        if self.harness.clock.now() >= self.resets_at:
            self.left, self.resets_at = self._refill, self.resets_at + 5 * HOUR
        self.left -= 1
        if self.left >= 0:
            return works(launch)
        session = session_of(launch)
        return Run(
            stdout=init(session) + answer(session),
            later=((self._after, rejected(self.resets_at, session)),),
            exit_code=1,
            seconds=self._after + 600.0,
        )


def house_with(window: Window, **settings: object) -> EngineHarness:
    harness = EngineHarness(window, **settings)  # type: ignore[arg-type]
    window.harness = harness
    return harness


async def test_a_unit_goes_to_the_account_that_has_room() -> None:
    async with EngineHarness(works, pool=10, limits={"anthropic/max-1": 1, "anthropic/max-2": 3}) as harness:
        harness.add_claude("night", 10, accounts=("max-1", "max-2"))
        await harness.run(10.0)

        assert (harness.scope("anthropic/max-1").in_flight, harness.scope("anthropic/max-2").in_flight) == (1, 3)


async def test_the_account_with_most_of_its_quota_left_goes_first() -> None:
    used = {"max-1": 0.8, "max-2": 0.3}

    def script(launch: Launch) -> Run:
        session, who = session_of(launch), launch.env["WHO"]
        said = init(session) + answer(session) + warned(used[who], NOW + 5 * HOUR, session)
        return Run(stdout=said, later=((MINUTE, done(session)),), seconds=MINUTE)

    accounts = [
        MAX_1.__class__(name=name, provider="anthropic", kind="subscription", env={"WHO": name}) for name in used
    ]
    async with EngineHarness(script, pool=2, accounts=accounts) as harness:
        harness.add_claude("learn-1", 1, accounts=("max-1",))
        harness.add_claude("learn-2", 1, accounts=("max-2",))
        await harness.run(90.0)

        harness.add_claude("night", 60, accounts=("max-1", "max-2"))
        await harness.run(20 * MINUTE)

        tried = [launch.env["WHO"] for launch in harness.executor.started[2:]]
        assert len(tried) >= 38
        assert tried == ["max-2"] * len(tried)

        used["max-1"], used["max-2"] = 0.1, 0.9
        await harness.run(20 * MINUTE)
        later = [launch.env["WHO"] for launch in harness.executor.started[2 + len(tried) :]]
        assert later[4:14] == ["max-1"] * 10  # as soon as max-2 has reported its use


async def test_units_whose_account_was_taken_away_say_so_and_go_on_when_it_is_back() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0)) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)

        harness.change("night", accounts=("max-2",))
        await harness.run(2 * HOUR)
        assert harness.states() == {"night/u0": "todo"}
        why = msgspec.json.decode(harness.store.load_state("why") or b"", type=dict[str, Deferred])
        assert why["night max-1"].detail == "1 unit has its conversation on 'max-1', which the campaign does not name"

        harness.change("night", accounts=("max-1", "max-2"))
        await harness.run(HOUR)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").account) == ("done", "max-1")
