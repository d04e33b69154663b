"""The scenario of a simulated world. What is not given is drawn from the seed."""

import random
from typing import Any

import msgspec

from paceline.core import GovernorSettings
from paceline.errors import InvalidInput

PATHS = (
    "umans",
    "anthropic/max-1/opus-4-6",
    "anthropic/max-1/sonnet-4-5",
    "anthropic/max-2/opus-4-6",
    "openai/key",
    "gemini/free/pro-3",
)
USAGE_SCOPES = ("umans", "openai")
STEPS = 500
ENGINE_STEPS = 15


class WorldScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a World.

    steps       how many things happen
    paths       how many provider paths tickets go to (1-6)
    groups      how many campaigns there are beside bare tickets
    priorities  how many priority levels there are
    sessions    the share of tickets that open a session (its runs follow)
    signals     429s, closed windows, platform limits and so on are reported
    usage       two providers answer (or do not answer) usage polls
    cooldowns   released slots still count for a while
    settings    a person changes limits and cooldowns meanwhile
    silent      the share of holders that never renew their lease
    clock_steps the wall clock is set back now and then
    restarts    the governor is stored and restored now and then
    twins       a second governor that is never restarted must answer the same
    pacing      half of the tickets are spread, and some scopes keep a reserve; some campaigns have a deadline
    faults      a provider answers every ticket: its resets move, strangers use the account, Retry-After is wrong
    saturated   nothing but full queues: measures the shares between groups
    fast        nothing but short calls, thousands a second, whose every answer states a budget
    engine      a whole engine with campaigns on unreliable accounts, over a memory store; a step is up to 15 minutes
    """

    steps: int = STEPS
    paths: int = 3
    groups: int = 2
    priorities: int = 3
    sessions: float = 0.0
    signals: bool = False
    usage: bool = False
    cooldowns: bool = False
    settings: bool = True
    silent: float = 0.0
    clock_steps: bool = False
    restarts: bool = False
    twins: bool = False
    pacing: bool = False
    faults: bool = False
    saturated: bool = False
    fast: bool = False
    engine: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.paths <= len(PATHS):
            raise InvalidInput(f"paths must be 1 to {len(PATHS)}; got {self.paths!r}")
        if self.steps < 1 or self.groups < 0 or self.priorities < 1:
            raise InvalidInput(f"steps and priorities must be >= 1 and groups >= 0; got {self!r}")
        if not (0 <= self.sessions <= 1 and 0 <= self.silent <= 1):
            raise InvalidInput(f"sessions and silent are shares of 0 to 1; got {self!r}")

    @property
    def is_calm(self) -> bool:
        """Return whether only the user's own limits bind, so that plain arithmetic shows which ticket could enter."""
        shares_cooling_places = self.cooldowns and self.sessions > 0
        return not (self.signals or self.usage or self.faults or shares_cooling_places)


def draw_scenario(rng: random.Random, asked: dict[str, Any]) -> WorldScenario:
    """Return the scenario that is asked for, with the rest drawn. Half of all worlds are calm: their checks are exact.

    Most worlds with an engine are not calm, because they test how it handles trouble.
    """
    is_calm = rng.random() < (0.1 if asked.get("engine") else 0.5)
    drawn: dict[str, Any] = {
        "steps": ENGINE_STEPS if asked.get("engine") else STEPS,
        "paths": rng.randint(1, len(PATHS)),
        "groups": rng.randint(0, 4),
        "priorities": rng.randint(1, 4),
        "sessions": rng.choice((0.0, 0.0, 0.2, 0.5)),
        "signals": not is_calm and rng.random() < 0.8,
        "usage": not is_calm and rng.random() < 0.4,
        "cooldowns": rng.random() < 0.4,
        "silent": rng.choice((0.0, 0.1, 0.3)),
        "clock_steps": rng.random() < 0.2,
        "restarts": rng.random() < 0.5,
        "twins": rng.random() < 0.1,
    }
    try:
        return msgspec.convert(drawn | asked, WorldScenario)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"no such scenario: {error}") from None


def draw_settings(rng: random.Random, scenario: WorldScenario) -> GovernorSettings:
    """Draw limits that are small enough to make tickets wait."""
    limits: dict[str, int | None] = {"sessions": rng.randint(2, 8), "runs": rng.randint(1, 12)}
    for path in PATHS[: scenario.paths]:
        for scope in (path, path.split("/")[0]):
            if rng.random() < 0.6:
                limits[scope] = rng.randint(1, 5)
    if rng.random() < 0.5:
        limits["anthropic/*/opus-*"] = rng.randint(1, 3)
    return GovernorSettings(
        limits=limits,
        cooldown=rng.choice((0.0, 0.35, 2.0)) if scenario.cooldowns else 0.0,
        headroom=rng.choice(("adaptive", "adaptive", "one-way", "off")),
        usage_scopes=USAGE_SCOPES if scenario.usage else (),
        reserves={path: rng.choice((0.1, 0.5)) for path in PATHS[: scenario.paths]} if scenario.pacing else {},
        default_pause=rng.choice((5.0, 30.0)),
        ageing=rng.choice((5.0, 60.0)),
        slot_timeout=rng.choice((60.0, 300.0)),
        watchdog_interval=rng.choice((10.0, 30.0)),
    )
