"""The price of parking: tokens that resumed sessions pay again, with landings and without.

    python -m benchmarks.cold              # seeds that nothing was tuned on
    python -m benchmarks.cold --seeds 1 2  # others

The real engine runs in virtual time over scripted sessions of Claude Code. A provider with a 5-hour window counts their
tokens, its cache forgets conversations, and one pool works through units of 20,000 to 400,000 tokens. `before` is the
same engine without landings. What a window weighs, and which readings it gives, is drawn by seed.
"""

import argparse
import asyncio
import json
import math
import random
import sys
from typing import Any

import msgspec

from paceline.executors.interface import DEFAULT_GRACE_SECONDS, Handle, Launch
from paceline.simulation.agent_transcripts import done, init, rejected, warned
from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import Run, ScriptedExecutor
from paceline.testing.engine_harness import HOUR, MAX_1, EngineHarness

WINDOW_SECONDS = 5 * HOUR
WINDOWS = 4
"""Periods that one run lasts: the first teaches, and each of the others begins with resumes."""
SEEDS = tuple(range(500, 512))
"""Nothing was tuned on these. Seeds below 100 were used while the rule was made."""
SMALLEST, LARGEST = 20_000, 400_000


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed draws: the provider, the fleet and the work."""

    pool: int
    window_tokens: float
    cache_seconds: float
    read_weight: float
    output_weight: float
    reads_from: float
    """Readings are reported from this share of the window on; above 1 there are none."""
    turns: tuple[int, int]
    turn_seconds: tuple[float, float]

    @classmethod
    def draw(cls, seed: int) -> "World":
        rng = random.Random(seed)
        pool = rng.choice((4, 6, 8, 12))
        return cls(
            pool=pool,
            window_tokens=pool * rng.uniform(0.6e6, 1.6e6),
            cache_seconds=rng.choice((300.0, HOUR)),
            read_weight=rng.choice((0.0, 0.05, 0.1)),
            output_weight=rng.choice((1.0, 5.0)),
            reads_from=rng.choice((0.0, 0.0, 0.5, 0.75, 2.0)),
            turns=rng.choice(((8, 30), (15, 60))),
            turn_seconds=rng.choice(((20.0, 90.0), (40.0, 180.0))),
        )


class Work(msgspec.Struct):
    """A unit: its conversation, and what is left of it."""

    rng: random.Random
    context: int
    per_turn: float
    turns_left: int
    cached_until: float = -math.inf
    cached: int = 0
    attempt: str = ""
    requests: int = 0


class Score(msgspec.Struct):
    """What one run came to."""

    lost: int = 0
    resumes: int = 0
    finished: int = 0
    refusals: int = 0
    closed: int = 0


class Sessions(ScriptedExecutor):
    """Sessions that ask the provider turn by turn. A unit that was ended early continues where it was."""

    def __init__(self, world: World, seed: int, clock: VirtualClock) -> None:
        super().__init__(self._begin, clock, remember=False)
        self.world, self.seed, self.clock = world, seed, clock
        self.score = Score()
        self.wake: Any = None
        self._works: dict[str, Work] = {}
        self._used, self._resets_at = 0.0, -math.inf

    def _begin(self, launch: Launch) -> Run:
        unit, attempt = launch.env["PACELINE_UNIT"], launch.attempt_id
        is_resumed = "--resume" in launch.argv
        if unit not in self._works or not is_resumed:
            self._works[unit] = self._new_work(unit)
        work = self._works[unit]
        work.attempt = attempt
        self.clock.call_at(self.clock.now() + 2.0, lambda: self._ask(unit, attempt, is_first=is_resumed))
        return Run(stdout=init(unit), seconds=math.inf)

    def _new_work(self, unit: str) -> Work:
        rng = random.Random(f"{self.seed} {unit}")
        last = math.exp(rng.uniform(math.log(SMALLEST * 1.5), math.log(LARGEST)))
        turns = rng.randint(*self.world.turns)
        return Work(rng, SMALLEST, (last - SMALLEST) / turns, turns)

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        for work in self._works.values():
            if work.attempt == handle.attempt_id:
                work.attempt = ""
        super().stop(handle, grace)

    # -- the provider --------------------------------------------------------------------------------

    def _ask(self, unit: str, attempt: str, *, is_first: bool = False) -> None:
        """Send the next request of a session, or be refused."""
        now, work = self.clock.now(), self._works[unit]
        if work.attempt != attempt:
            return  # it was ended
        if now >= self._resets_at:
            self._used, self._resets_at = 0.0, now + WINDOW_SECONDS
        if self._used >= self.world.window_tokens:
            self.score.refusals += 1
            work.attempt = ""
            self.cut(attempt, rejected(self._resets_at, unit), after=1.0)
            self.wake()
            return
        read = work.cached if now < work.cached_until else 0
        written, output = work.context - read, work.rng.randint(300, 1_500)
        if is_first:
            self.score.resumes += 1
            self.score.lost += max(0, work.cached - read)
        self._used += written + self.world.read_weight * read + self.world.output_weight * output
        self.score.closed += self._used >= self.world.window_tokens
        work.cached, work.cached_until = work.context, now + self.world.cache_seconds
        work.requests += 1
        work.context += int(work.per_turn)
        work.turns_left -= 1
        usage = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written, "output_tokens": output}
        text = _message(unit, work.requests, usage) + self._reading(unit)
        self.print_output(attempt, text)
        self.wake()
        seconds = work.rng.uniform(*self.world.turn_seconds)
        self.clock.call_at(now + seconds, lambda: self._end_turn(unit, attempt))

    def _end_turn(self, unit: str, attempt: str) -> None:
        work = self._works[unit]
        if work.attempt != attempt:
            return
        if work.turns_left <= 0:
            self.score.finished += 1
            work.attempt = ""
            self.cut(attempt, done(unit), exit_code=0)
            self.wake()
            return
        self.print_output(attempt, _tool_result(unit, work.requests))
        self.wake()
        self.clock.call_at(self.clock.now() + 1.0, lambda: self._ask(unit, attempt))

    def _reading(self, unit: str) -> str:
        used = math.floor(100 * self._used / self.world.window_tokens) / 100
        return warned(min(1.0, used), self._resets_at, unit) if used >= self.world.reads_from else ""


def _message(session: str, number: int, usage: dict[str, int]) -> str:
    content = [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}]
    message = {"id": f"m{number}", "model": "opus", "content": content, "usage": {"input_tokens": 3, **usage}}
    return json.dumps({"type": "assistant", "session_id": session, "message": message}) + "\n"


def _tool_result(session: str, number: int) -> str:
    content = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "ok"}]
    return json.dumps({"type": "user", "session_id": session, "message": {"role": "user", "content": content}}) + "\n"


async def run_once(seed: int, *, landing: bool) -> Score:
    """Return the score of one seed, with landings or without."""
    world = World.draw(seed)
    harness = EngineHarness(pool=world.pool, accounts=(MAX_1,), heartbeat=60.0, lease=600.0)
    sessions = Sessions(world, seed, harness.clock)
    harness.executor = sessions
    harness.engine = harness.new_engine("bench")
    sessions.wake = harness.engine.wake
    harness.add_claude("night", 4_000)
    async with harness:
        await harness.run(0.001)
        if not landing:
            _without_landing(harness)
        await harness.run(WINDOWS * WINDOW_SECONDS)
        charged = harness.failures()
    if charged:
        raise SystemExit(f"seed {seed}: {charged} units were charged")
    return sessions.score


def _without_landing(harness: EngineHarness) -> None:
    """Let the engine do as before: sessions start while there is room, run into the closing, and resume together."""
    engine: Any = harness.engine
    engine._landing.step = lambda now: None


def scenario(seeds: tuple[int, ...] = SEEDS) -> dict[int, tuple[Score, Score]]:
    """Return the scores of each seed, without landings and with them."""
    return {
        seed: (asyncio.run(run_once(seed, landing=False)), asyncio.run(run_once(seed, landing=True))) for seed in seeds
    }


def table(scores: dict[int, tuple[Score, Score]]) -> str:
    """Return the scores as a table in Markdown."""
    lines = ["| seed | lost before | lost now | ratio | units before | units now |", "|---|---|---|---|---|---|"]
    total_before, total_now = Score(), Score()
    for seed, (before, now) in [*scores.items(), (0, (total_before, total_now))]:
        name = str(seed) if seed else "**all**"
        ratio = f"{now.lost / before.lost:.0%}" if before.lost else "–"
        lines.append(
            f"| {name} | {before.lost:,} | {now.lost:,} | {ratio} |"
            f" {before.finished / WINDOWS:.1f} | {now.finished / WINDOWS:.1f} |"
        )
        total_before.lost, total_now.lost = total_before.lost + before.lost, total_now.lost + now.lost
        total_before.finished, total_now.finished = (
            total_before.finished + before.finished,
            total_now.finished + now.finished,
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    chosen = tuple(parser.parse_args().seeds)
    sys.stdout.write("Tokens lost to parking, and units finished per window of 5 hours\n\n")
    sys.stdout.write(table(scenario(chosen)) + "\n")


if __name__ == "__main__":
    main()
