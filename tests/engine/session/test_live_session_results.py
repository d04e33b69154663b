"""What is known of a unit's work is summed over its attempts: tokens, cost, turns, times and the last answer."""

import json

import msgspec
import pytest

from paceline.agents.account import Account
from paceline.engine import commands
from paceline.engine.session.live_session import cost_after
from paceline.executors.interface import Launch
from paceline.settings.model import Price, PriceList
from paceline.simulation.executor import Run
from paceline.store import Cost, Tokens, UnitResult
from paceline.testing.engine_harness import HOUR, MAX_1, NOW, EngineHarness

KEY = Account(name="key", provider="anthropic", kind="metered", key_env="ANTHROPIC_API_KEY")
PRICES = PriceList({"opus-4-6": Price(input=10.0, output=100.0, cache_read=1.0, cache_write=20.0)})
MILLION = 1_000_000


def printed(*events: dict[str, object]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def init(source: str = "none") -> dict[str, object]:
    return {
        "type": "system",
        "subtype": "init",
        "session_id": "s1",
        "apiKeySource": source,
        "model": "claude-opus-4-6",
    }


def message(identifier: str, tokens: int) -> dict[str, object]:
    usage = {"input_tokens": tokens, "output_tokens": 1}
    content = [{"type": "text", "text": "at work"}]
    head = {"id": identifier, "model": "claude-opus-4-6", "content": content, "usage": usage}
    return {"type": "assistant", "session_id": "s1", "message": head}


def result(tokens: int, answer: str = "It is done.", *, counts_conversation: bool = False) -> dict[str, object]:
    model: dict[str, object] = {"inputTokens": tokens, "outputTokens": tokens, "cacheReadInputTokens": tokens}
    if counts_conversation:
        model["canonicalModel"] = "claude-opus-4-6"
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": answer,
        "session_id": "s1",
        "num_turns": 3,
        "modelUsage": {"claude-opus-4-6": model},
    }


def rejected(resets_at: float) -> dict[str, object]:
    info = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    return {"type": "rate_limit_event", "rate_limit_info": info, "session_id": "s1"}


def harness_of(*runs: Run, account: Account = MAX_1, prices: PriceList = PRICES) -> EngineHarness:
    """Each attempt is the next of the runs."""
    left = list(runs)
    harness = EngineHarness(lambda _: left.pop(0), accounts=(account,), heartbeat=1.0)
    harness.settings = msgspec.structs.replace(harness.settings, prices=prices)
    harness.engine = harness.new_engine()
    return harness


async def result_of(harness: EngineHarness, account: str = "max-1", seconds: float = 120.0) -> UnitResult:
    async with harness:
        harness.add_claude("night", 1, accounts=(account,))
        await harness.run(seconds)
        return harness.unit("night/u0").result


async def test_an_attempt_leaves_its_tokens_turns_model_answer_and_times() -> None:
    found = await result_of(harness_of(Run(stdout=printed(init(), message("m", 5), result(MILLION)), seconds=60.0)))

    assert (found.agent, found.model, found.turns, found.answer) == ("claude", "claude-opus-4-6", 3, "It is done.")
    assert found.tokens == Tokens(input=MILLION, output=MILLION, cache_read=MILLION)
    assert found.cost == Cost(imputed=111.0)
    assert found.ran_seconds == pytest.approx(60.0, abs=2.0)
    assert 0.0 <= found.waited_seconds <= 2.0
    assert found.host


async def test_a_key_is_billed_and_a_subscription_is_imputed() -> None:
    run = Run(stdout=printed(init("ANTHROPIC_API_KEY"), message("m", 5), result(MILLION)), seconds=5.0)

    found = await result_of(harness_of(run, account=KEY), "key")

    assert found.cost == Cost(billed=111.0)


async def test_a_model_without_a_price_leaves_the_cost_unknown() -> None:
    run = Run(stdout=printed(init(), message("m", 5), result(MILLION)), seconds=5.0)

    found = await result_of(harness_of(run, prices=PriceList({})))

    assert (found.tokens, found.cost) == (Tokens(input=MILLION, output=MILLION, cache_read=MILLION), Cost())


@pytest.mark.parametrize("counts_conversation", [False, True])
async def test_attempts_of_one_conversation_are_counted_once(counts_conversation: bool) -> None:
    """The first attempt is ended before it counts: newer versions count its messages in the next result as well."""
    parked = Run(
        stdout=printed(init(), message("a", 1000)), later=((5.0, printed(rejected(NOW + 1200.0))),), seconds=600.0
    )
    second = 5000 if counts_conversation else 4000
    resumed = Run(
        stdout=printed(init(), message("b", 9), result(second, "At last.", counts_conversation=counts_conversation)),
        seconds=60.0,
    )

    found = await result_of(harness_of(parked, resumed), seconds=2 * HOUR)

    outputs = 4999 if counts_conversation else 4000
    assert found.tokens == Tokens(input=5000, output=1 + outputs, cache_read=second)
    assert (found.answer, found.turns) == ("At last.", 3)
    assert found.parked_seconds == pytest.approx(1200.0, rel=0.05)
    assert found.waited_seconds == pytest.approx(found.parked_seconds, abs=3.0)
    assert 60.0 <= found.ran_seconds < 120.0


async def test_a_new_conversation_after_a_failure_is_added_whole() -> None:
    failed = printed(init(), message("a", 5), result(1000, counts_conversation=True) | {"is_error": True})
    again = printed(init(), message("b", 5), result(3000, counts_conversation=True))

    found = await result_of(harness_of(Run(stdout=failed, exit_code=1), Run(stdout=again)))

    assert found.tokens == Tokens(input=4000, output=4000, cache_read=4000)
    assert found.carried.conversation_tokens == {"claude-opus-4-6": Tokens(input=3000, output=3000, cache_read=3000)}


async def test_a_new_conversation_on_another_machine_is_added_whole() -> None:
    """A transcript stays on its machine, so the unit begins again without it, and its CLI counts from 0."""
    first = Run(
        stdout=printed(init(), message("a", 5), result(2000, counts_conversation=True)),
        later=((5.0, printed(rejected(NOW + 1200.0))),),
        seconds=600.0,
    )
    again = Run(stdout=printed(init(), message("b", 5), result(3000, counts_conversation=True)), seconds=60.0)
    harness = harness_of(first, again)

    async with harness:
        harness.add_claude("night", 1)
        await harness.run(900.0)
        before = harness.unit("night/u0").result
        harness.store.forget_conversation("night/u0")
        await harness.run(2 * HOUR)
        found = harness.unit("night/u0").result

    assert before.tokens == Tokens(input=2000, output=2000, cache_read=2000)
    assert found.tokens == Tokens(input=5000, output=5000, cache_read=5000)
    assert found.carried.conversation_tokens == {"claude-opus-4-6": Tokens(input=3000, output=3000, cache_read=3000)}
    assert found.lost_tokens == 0


@pytest.mark.parametrize("before", [Cost(billed=5.0), Cost(imputed=5.0), Cost(billed=1.0, imputed=2.0)])
@pytest.mark.parametrize("is_billed", [True, False])
def test_a_cost_that_is_unknown_once_stays_unknown(before: Cost, is_billed: bool) -> None:
    known = UnitResult(tokens=Tokens(input=MILLION), cost=before)

    unknown = msgspec.structs.replace(
        known, cost=cost_after(known, {"nobody-knows": Tokens(input=1)}, PRICES, is_billed=is_billed)
    )
    after = cost_after(unknown, {"opus-4-6": Tokens(input=MILLION)}, PRICES, is_billed=not is_billed)

    assert (unknown.cost, after) == (Cost(), Cost())


@pytest.mark.parametrize("crashes", [False, True], ids=["in one engine", "over a crash"])
async def test_what_a_cancelled_attempt_used_counts_also_after_a_retry(crashes: bool) -> None:
    cancelled = Run(stdout=printed(init(), message("a", 100), message("b", 200)), seconds=600.0)
    again = Run(stdout=printed(init(), message("c", 10)), seconds=600.0)
    harness = harness_of(cancelled, again)

    async with harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)
        commands.cancel_unit(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        if crashes:
            await harness.crash()
        await harness.run(60.0)
        once = harness.unit("night/u0").result
        commands.retry_unit(harness.store, harness.unit("night/u0"), fresh=True, now=harness.clock.now())
        await harness.run(60.0)
        commands.cancel_unit(harness.store, harness.unit("night/u0"), now=harness.clock.now())
        await harness.run(60.0)
        twice = harness.unit("night/u0").result

    assert [each.tokens for each in (once, twice)] == [Tokens(input=300, output=2), Tokens(input=310, output=3)]
    assert [each.cost.imputed for each in (once, twice)] == pytest.approx([0.0032, 0.0034])


async def test_a_command_has_an_answer_and_no_tokens() -> None:
    def work(_: Launch) -> Run:
        return Run(stdout="3 files done\n", seconds=10.0)

    async with EngineHarness(work, heartbeat=1.0) as harness:
        harness.add("night", 1)
        await harness.run(30.0)
        found = harness.unit("night/u0").result

    assert (found.agent, found.model, found.answer) == ("command", None, "3 files done")
    assert (found.tokens, found.turns, found.cost) == (None, None, Cost())
