"""An account whose quota window is used up by seconds of sessions or by tokens, and which never reports its use."""

import json
import random
from bisect import bisect_right

from paceline.executors.interface import Launch
from paceline.simulation import agent_transcripts as transcripts
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import HOUR, EngineHarness

LENGTH = 5 * HOUR
NOTICE_SECONDS = 5.0


class MeteredAccount:
    """`holds` is what a period gives: seconds of sessions, or tokens where a session uses `tokens` a minute."""

    def __init__(self, holds: float, *, minutes: float = 10.0, seed: int | None = None, tokens: int = 0) -> None:
        self.harness: EngineHarness | None = None
        self.holds = holds
        self.openings: list[float] = []
        self.closings: list[float] = []
        self._minutes, self._tokens = minutes, tokens
        self._dice = random.Random(seed) if seed is not None else None
        self._cost = tokens / 60.0 if tokens else 1.0
        self._left: dict[str, float] = {}
        self._live: dict[str, tuple[str, float, float]] = {}
        self._used: list[tuple[float, float]] = []

    def __call__(self, launch: Launch) -> Run:
        """A session starts: a window that has reset opens with it."""
        now, unit = self._now, launch.env["PACELINE_UNIT"]
        self._count()
        if not self.openings or now >= self.openings[-1] + LENGTH:
            self.openings.append(now)
            self._used.append((now, 0.0))
        session, says = f"talk-{unit}", transcripts.init(f"talk-{unit}")
        if self.used >= self.holds - 1e-6:
            return Run(stdout=says + self._rejected(session), exit_code=1, seconds=1.0)
        seconds = self._left.setdefault(unit, self._draw())
        self._live[launch.attempt_id] = unit, now, now + seconds
        self._look_later()
        return Run(stdout=says + _says(), later=self._turns(seconds), seconds=seconds)

    def _draw(self) -> float:
        if self._dice is None:
            return self._minutes * 60.0
        return min(2 * HOUR, self._minutes * 20.0 * self._dice.paretovariate(1.3))

    def _turns(self, seconds: float) -> tuple[tuple[float, str], ...]:
        """What it says at each minute, and at the end."""
        turn_times = [60.0 * (n + 1) for n in range(int(seconds / 60.0))] if self._tokens else []
        turns = [(at, _says(f"m{at:.0f}", self._tokens)) for at in turn_times]
        return (*turns, (seconds, _line(type="result", subtype="success", is_error=False, result="Done.")))

    # -- the provider's count ---------------------------------------------------------------------

    @property
    def used(self) -> float:
        return self._used[-1][1]

    def used_at(self, period: int, share: float) -> float:
        """How much of a period was used when so much of its time had passed, as a share of what it holds."""
        at = self.openings[period] + share * LENGTH
        found = bisect_right(self._used, (at, float("inf"))) - 1
        return self._used[found][1] / self.holds

    @property
    def _now(self) -> float:
        assert self.harness is not None
        return self.harness.clock.now()

    def _count(self) -> None:
        """Bring the count up to now."""
        assert self.harness is not None
        now = self._now
        since, used = self._used[-1] if self._used else (now, 0.0)
        for attempt, (unit, began, planned) in list(self._live.items()):
            end = self.harness.executor.ends_at(attempt)
            used += self._cost * max(0.0, min(now, end) - max(since, began))
            if end <= now:
                del self._live[attempt]
                self._left[unit] -= end - began
                if end == planned:
                    del self._left[unit]
        self._used.append((now, used))

    def _look_later(self) -> None:
        assert self.harness is not None
        wait = max(1.0, (self.holds - self.used) / self._cost / max(1, len(self._live)))
        self.harness.clock.call_at(self._now + wait, self._look)

    def _look(self) -> None:
        """Whether it is spent. Running sessions are refused, and keep what they have done."""
        assert self.harness is not None
        self._count()
        if self.used < self.holds - 1e-6:
            if self._live:
                self._look_later()
            return
        if self._live:
            self.closings.append(self._now)
        for attempt, (unit, began, _) in self._live.items():
            self._left[unit] = max(1.0, self._left[unit] - (self._now - began))
            self.harness.executor.cut(attempt, self._rejected(f"talk-{unit}"), after=NOTICE_SECONDS)
        self._live.clear()

    def _rejected(self, session: str) -> str:
        return transcripts.rejected(self.openings[-1] + LENGTH, session)


def metered_house(account: MeteredAccount, **settings: object) -> EngineHarness:
    account.harness = EngineHarness(account, **settings)  # type: ignore[arg-type]
    return account.harness


def _says(message: str = "m0", tokens: int = 0) -> str:
    said: dict[str, object] = {"id": message, "model": "opus", "content": [{"type": "text", "text": "Working."}]}
    if tokens:
        said["usage"] = {"input_tokens": tokens - 1, "output_tokens": 1}
    return _line(type="assistant", message=said)


def _line(**event: object) -> str:
    return json.dumps(event) + "\n"
