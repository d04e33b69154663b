"""What a provider says of its own count, read over real HTTP; whatever cannot be read is unknown."""

import pytest

from paceline import openai_compatible_usage
from paceline.core.signals import Usage
from paceline.limiter.usage_requests import read_usage
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario


async def test_a_reading_has_the_count_and_the_limit_of_the_key() -> None:
    async with FakeProvider(Scenario(concurrency=3)) as provider:
        source = openai_compatible_usage(provider.url, "k1")

        assert await source() == Usage(concurrent_sessions=0, limit=3, hard_cap=3, source="field")
        assert provider.usage_polls == 1


async def test_a_provider_that_is_away_is_unknown() -> None:
    async with FakeProvider() as provider:
        source = openai_compatible_usage(provider.url + "/", "k1")
    assert await source() is None


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"usage": 3}, *({"usage": {"concurrent_sessions": odd}} for odd in (None, "2", True, -1, 1e999))],
)
def test_an_odd_shape_is_unknown(answer: object) -> None:
    assert read_usage(answer) is None


def test_odd_limits_leave_the_count() -> None:
    answer = {"usage": {"concurrent_sessions": 2.7}, "limits": {"concurrency": {"limit": "many", "hard_cap": 8}}}

    assert read_usage(answer) == Usage(concurrent_sessions=2, limit=None, hard_cap=8, source="field")
