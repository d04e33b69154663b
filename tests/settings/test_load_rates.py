"""Rates of one's own in paceline.toml: by scope or by account, under the names people know."""

import pytest

from paceline.core.values.rates import Rate
from paceline.settings import governor_settings

from .conftest import Load, Refused

WORK_KEY = """
[accounts.work-key]
provider = "anthropic"
kind = "metered"
"""


def test_rates_stand_by_scope_and_by_account(load: Load) -> None:
    found = load(
        f'[rates."anthropic/*/claude-opus-*"]\nrpm = 50\ntpm = 40000\n[rates.umans]\nmax_parallel_requests = 8\n'
        f"{WORK_KEY}rpm = 200\nmax_parallel_requests = 12\n"
    )

    assert found.rates == {"anthropic/*/opus-*": Rate(rpm=50, tpm=40000), "anthropic/work-key": Rate(rpm=200)}
    assert {scope: found.limits[scope].limit for scope in ("umans", "anthropic/work-key")} == {
        "umans": 8,
        "anthropic/work-key": 12,
    }
    assert governor_settings(found).rates == found.rates


def test_a_key_of_an_account_and_of_its_scope_add_up(load: Load) -> None:
    found = load(f'{WORK_KEY}rpm = 200\n[rates."anthropic/work-key"]\ntpm = 5\n')

    assert found.rates == {"anthropic/work-key": Rate(rpm=200, tpm=5)}


def test_a_limit_from_outside_wins_over_the_files_max_parallel_requests(load: Load) -> None:
    found = load("[rates.umans]\nmax_parallel_requests = 8", {"PACELINE_LIMITS": "umans=3"})

    assert (found.limits["umans"].limit, found.limits["umans"].source) == (3, "environment")


@pytest.mark.parametrize("key", ["rpm", "tpm", "max_parallel_requests"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"50"', "true", '"none"', "[]", "10000000000"])
@pytest.mark.parametrize("table", ["[rates.umans]", "[accounts.a]"])
def test_a_value_that_is_no_rate_is_refused(refused: Refused, table: str, key: str, value: str) -> None:
    needed = 'provider = "x"\nkind = "metered"\n' if "accounts" in table else ""

    mistakes = refused(f"{table}\n{needed}{key} = {value}")

    assert len(mistakes) == 1
    assert f".{key} = " in mistakes[0]
    assert "must be a whole number from 1" in mistakes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[rates."a//b"]\nrpm = 1', 'rates."a//b"'),
        ("[rates.sessions]\nrpm = 1", "only runs have a rate"),
        ("[rates.umans]\nrps = 1", 'unknown key rates.umans.rps; did you mean "rpm"?'),
        ("[rates]\numans = 5", "rates.umans must be a table"),
        ('[rates.umans]\nrpm = 1\n[rates."umans "]\nrpm = 2', "umans "),
        (f'{WORK_KEY}rpm = 1\n[rates."anthropic/work-key"]\nrpm = 2', "is already set in"),
        ("[limits]\numans = 3\n[rates.umans]\nmax_parallel_requests = 8", "is the limit of umans"),
        ('[rates."a/b/claude-opus-4-6"]\nrpm = 1\n[rates."a/b/opus-4-6"]\nrpm = 1', "is already set in"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(refused: Refused, text: str, said: str) -> None:
    (mistake,) = refused(text)

    assert said in mistake
    assert "paceline.toml:" in mistake


def test_the_gateway_is_for_metered_accounts(load: Load, refused: Refused) -> None:
    assert load(f"{WORK_KEY}via_gateway = true").accounts["work-key"].via_gateway
    (mistake,) = refused('[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\nvia_gateway = true')

    assert "accounts.max-1.via_gateway is for metered accounts" in mistake
