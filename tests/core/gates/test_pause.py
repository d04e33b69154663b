"""Pauses: a wait that nobody can have meant does not stop a scope for days."""

import pytest

from paceline.core import Governor, GovernorSettings
from paceline.core.signals import Overloaded, PlatformLimit, RateLimited, Unreachable

DAY_SECONDS = 86400.0


Refusal = RateLimited | Overloaded | PlatformLimit | Unreachable


@pytest.mark.parametrize("kind", [RateLimited, Overloaded, PlatformLimit, Unreachable])
def test_a_stated_wait_of_weeks_pauses_for_hours(kind: type[Refusal]) -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    refusal = kind(retry_after=40 * DAY_SECONDS)

    governor.report("openai/work", refusal, now=0.0)

    status = governor.status("openai/work", now=0.0)
    assert status is not None
    assert status.paused_until == 6 * 3600.0
