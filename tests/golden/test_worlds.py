"""Whole lives in simulated time: the same seed leads to the same figures as recorded, to the last grant."""

from typing import Any

import msgspec
import pytest
from tests.golden.recording import Recordings

from paceline.testing import World

WORLDS: dict[str, dict[str, Any]] = {
    "calm": {"seed": 1, "signals": False, "usage": False, "steps": 400},
    "signals": {"seed": 2, "signals": True, "sessions": 0.5, "paths": 6, "groups": 3, "steps": 400},
    "usage": {"seed": 3, "signals": True, "usage": True, "cooldowns": True, "silent": 0.3, "steps": 400},
    "restarts": {"seed": 4, "signals": True, "restarts": True, "clock_steps": True, "steps": 400},
    "pacing": {"seed": 5, "signals": True, "pacing": True, "paths": 6, "steps": 400},
    "saturated": {"seed": 6, "saturated": True, "steps": 400},
    "engine": {"seed": 7, "engine": True},
    "engine with restarts": {"seed": 8, "engine": True, "restarts": True, "signals": True},
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_leads_to_the_recorded_figures(name: str, recordings: Recordings) -> None:
    figures = World(**WORLDS[name]).run()

    recordings.compare(f"worlds/{name.replace(' ', '_')}", msgspec.to_builtins(figures))
