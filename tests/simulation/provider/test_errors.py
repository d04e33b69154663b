"""Every named error, in every protocol: what it says must be whole, and of the kind its name promises."""

import pytest

from paceline.simulation.provider.errors import (
    NAMES,
    TABLES,
    ErrorFacts,
    Kind,
    ProviderError,
    fill,
    find_error,
    go_duration,
    refuse,
)
from paceline.simulation.provider.protocol_module import ProtocolName

FACTS = ErrorFacts(now=1_800_000_000.0, model="m1", retry_after=2.5, resets_at=1_800_007_200.0, limit=4, in_use=4)
KINDS: tuple[Kind, ...] = (
    "rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed",
)  # fmt: skip


def is_whole(refused: ProviderError) -> bool:
    texts = [*refused.headers, *refused.headers.values()]
    has_body = bool(refused.body) or refused.place != "before"
    return has_body and "{retry" not in str(refused.body) and not any("{" in text for text in texts)


@pytest.mark.parametrize("protocol", TABLES)
def test_every_name_can_be_scripted_whatever_the_protocol(protocol: ProtocolName) -> None:
    assert [name for name in sorted(NAMES) if not is_whole(refuse(protocol, name, FACTS))] == []


def test_a_name_means_the_same_kind_in_every_protocol_that_has_such_a_kind() -> None:
    for name in sorted(NAMES):
        (meant,) = {error.kind for table in TABLES.values() for key, error in table.items() if key == name}
        able = [protocol for protocol, table in TABLES.items() if meant in {error.kind for error in table.values()}]
        assert {find_error(protocol, name).kind for protocol in able} == {meant}, name


def test_every_kind_can_be_had() -> None:
    assert {error.kind for table in TABLES.values() for error in table.values()} == set(KINDS)


def test_a_filled_template_keeps_numbers_as_numbers() -> None:
    values: dict[str, str | int] = {"n": 3, "m": "x"}
    template = {"{m}-key": ["{n}", "n is {n}", {"deep": "{m}"}], "plain": None}
    assert fill(template, values) == {"x-key": [3, "n is 3", {"deep": "x"}], "plain": None}


def test_the_headers_of_a_spent_weekly_window() -> None:
    unified = "anthropic-ratelimit-unified"
    assert refuse("anthropic", "429_unified_7d", FACTS).headers == {
        f"{unified}-status": "rejected",
        f"{unified}-reset": "1800007200",
        f"{unified}-representative-claim": "seven_day",
        f"{unified}-7d-status": "rejected",
        f"{unified}-7d-reset": "1800007200",
        f"{unified}-7d-utilization": "1.0",
        f"{unified}-fallback-percentage": "0.5",
        f"{unified}-overage-status": "rejected",
        f"{unified}-overage-disabled-reason": "org_level_disabled",
        "retry-after": "7200",
    }


def test_the_body_of_a_codex_usage_limit() -> None:
    assert refuse("openai-responses", "429_usage_limit", FACTS).body == {
        "error": {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": 1_800_007_200,
            "resets_in_seconds": 7200,
        }
    }


@pytest.mark.parametrize(("seconds", "spelled"), [(5, "5s"), (65, "1m5s"), (31447, "8h44m7s"), (3600, "1h0m0s")])
def test_durations_as_go_prints_them(seconds: int, spelled: str) -> None:
    assert go_duration(seconds) == spelled
