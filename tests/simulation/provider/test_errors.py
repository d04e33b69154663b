"""Every named error, in every protocol: what it says must be whole, and of the kind its name promises."""

import pytest

from paceline.simulation.provider.errors import NAMES, TABLES, find_error, refuse
from paceline.simulation.provider.errors.shape import Kind
from paceline.simulation.provider.facts import ErrorFacts, fill, go_duration
from paceline.simulation.provider.protocol_module import ProtocolName

FACTS = ErrorFacts(now=1_800_000_000.0, model="m1", retry_after=2.5, resets_at=1_800_007_200.0, limit=4, in_use=4)
KINDS: tuple[Kind, ...] = (
    "rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed",
)  # fmt: skip


@pytest.mark.parametrize("protocol", TABLES)
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_can_be_scripted_whatever_the_protocol(protocol: ProtocolName, name: str) -> None:
    refused = refuse(protocol, name, FACTS)
    assert "{" not in "".join([*refused.headers, *refused.headers.values()])
    assert "{retry" not in str(refused.body)
    assert refused.body or refused.place != "before"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_means_the_same_kind_in_every_protocol_that_has_such_a_kind(name: str) -> None:
    meant = {error.kind for table in TABLES.values() for key, error in table.items() if key == name}
    assert len(meant) == 1
    for protocol, table in TABLES.items():
        available = {error.kind for error in table.values()}
        if meant <= available:
            assert find_error(protocol, name).kind in meant


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
