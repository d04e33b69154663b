"""Prices: the shipped list, the user's own, and what tokens cost."""

import datetime
import json

import pytest
from tests.detect.sample_files import RECORDED

from paceline.core.values.session_output import Tokens
from paceline.settings.model import Price, price_list, shipped_prices

from .conftest import Load, Refused

MILLION = 1_000_000
SPENT = Tokens(input=MILLION, output=MILLION, cache_read=MILLION, cache_write=MILLION)


def test_the_shipped_list_is_dated_and_its_cache_is_cheaper_than_its_input() -> None:
    shipped = shipped_prices()

    datetime.date.fromisoformat(shipped.as_of)
    for price in shipped.models.values():
        assert 0 < (price.cache_read or 0) < price.input < price.output
        assert (price.cache_write or 0) >= price.input


@pytest.mark.parametrize(
    "model",
    ["claude-opus-4-8", "opus-4-8", "claude-opus-4-8[1m]", "anthropic/claude-opus-4-8", "claude-opus-4-8@20261001"],
)
def test_a_model_has_one_price_under_all_its_names(model: str) -> None:
    """The cost that Claude Code itself printed for these tokens."""
    assert price_list().cost({model: Tokens(input=19083, output=9)}) == pytest.approx(0.09564)


RESULTS = [
    event
    for path in sorted(RECORDED.glob("claude-newest/*.out"))
    for line in path.read_bytes().splitlines()
    if line.startswith(b"{") and (event := json.loads(line)).get("type") == "result" and event["total_cost_usd"]
]


def test_the_shipped_list_prices_recorded_runs_as_claude_code_did() -> None:
    """Of two lists that were made apart, each proves the other."""
    for result in RESULTS:
        used = {
            model: Tokens(
                input=usage["inputTokens"],
                output=usage["outputTokens"],
                cache_read=usage["cacheReadInputTokens"],
                cache_write=usage["cacheCreationInputTokens"],
            )
            for model, usage in result["modelUsage"].items()
        }
        assert price_list().cost(used) == pytest.approx(result["total_cost_usd"])

    assert RESULTS


def test_the_cost_is_known_only_if_every_model_has_a_price() -> None:
    prices = price_list({"mine": Price(input=1.0, output=2.0, cache_read=0.5, cache_write=4.0)})

    assert prices.cost({"mine": SPENT}) == 7.5
    assert prices.cost({"mine": SPENT, "other": Tokens()}) == 7.5
    assert prices.cost({"mine": SPENT, "other": Tokens(output=1)}) is None


CALL = Tokens(input=1_000, output=1_000)


@pytest.mark.parametrize(
    ("served", "factor"),
    [
        ({"service_tier": "default"}, 1.0),
        ({"service_tier": "flex"}, 1.0),
        ({"service_tier": "nobody-knows"}, 1.0),
        ({"service_tier": "priority"}, 2.5),
        ({"service_tier": "ultrafast"}, 6.0),
        ({"speed": "fast", "inference_geo": "us"}, 6.6),
    ],
)
def test_a_call_costs_what_its_tier_costs_and_never_less_than_the_list(served: dict[str, str], factor: float) -> None:
    prices = price_list({"mine": Price(input=1.0, output=2.0)})

    assert prices.cost_of_call("mine", CALL, served, {}) == pytest.approx(0.003 * factor)
    assert prices.cost_of_call("other", CALL, served, {}) is None


def test_a_call_costs_more_for_an_hour_of_cache_for_audio_and_for_searches() -> None:
    prices = price_list({"mine": Price(input=10.0, output=50.0, cache_read=1.0, cache_write=12.5)})
    written = Tokens(cache_write=MILLION)

    def cost(**extras: int) -> float | None:
        return prices.cost_of_call("mine", written, {}, extras)

    assert [cost(), cost(hour_cache_write=MILLION), cost(web_search=100)] == pytest.approx([12.5, 20.0, 13.5])
    assert prices.cost_of_call("mine", Tokens(input=MILLION), {}, {"audio": MILLION}) == pytest.approx(34.0)


def test_all_of_a_call_with_a_long_prompt_costs_more() -> None:
    short, long = (Tokens(input=10_000, cache_read=each, output=1_000) for each in (190_000, 190_001))

    assert [price_list().cost_of_call("gemini-2.5-pro", each, {}, {}) for each in (short, long)] == pytest.approx(
        [0.0125 + 0.02375 + 0.01, 2 * (0.0125 + 0.023750125) + 0.015]
    )


def test_without_a_price_of_its_own_the_cache_costs_what_other_input_costs() -> None:
    assert price_list({"mine": Price(input=1.0, output=2.0)}).cost({"mine": SPENT}) == 5.0


def test_a_price_of_the_file_replaces_the_shipped_one(load: Load) -> None:
    text = '[prices]\n"claude-opus-4-6" = { input = 15.0, output = 75, cache_read = 1.5, cache_write = 18.75 }'

    found = load(text)

    assert found.prices == {"claude-opus-4-6": Price(input=15.0, output=75.0, cache_read=1.5, cache_write=18.75)}
    assert price_list(found.prices).cost({"opus-4-6": Tokens(output=MILLION)}) == 75.0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("opus = { input = 3.0 }", "prices.opus needs output, such as { input = 3.0, output = 15.0 }"),
        ("opus = 3.0", "prices.opus"),
        ('opus = { input = "3", output = 15.0 }', "prices.opus.input"),
        ("opus = { input = -1, output = 15.0 }", "must be dollars per million tokens"),
        ("opus = { input = true, output = 15.0 }", "prices.opus.input"),
        ("opus = { input = nan, output = 15.0 }", "prices.opus.input"),
        ("opus = { input = 3, outputs = 15.0, output = 1 }", "outputs"),
        ('opus-4-6 = { input = 3, output = 1 }\n"claude-opus-4-6" = { input = 3, output = 1 }', "is the same model as"),
    ],
)
def test_a_wrong_price_is_refused_with_its_place(line: str, expected: str, refused: Refused) -> None:
    (mistake,) = refused(f"[prices]\n{line}")
    assert mistake.startswith("paceline.toml:")
    assert expected in mistake
