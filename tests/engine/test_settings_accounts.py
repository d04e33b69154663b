"""Plans without accounts: the default login of their agent is an account like any other."""

from pathlib import Path

import msgspec
from tests.engine.dispatch.test_ticket_queues_accounts import Window, house_with, works

from paceline.core import Deferred
from paceline.core.signals import QuotaClosed
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.store import SqliteStore, Store
from paceline.testing.engine_harness import HOUR, NOW, EngineHarness

LOGIN = "anthropic/default"


def waits(store: Store) -> dict[str, Deferred]:
    return msgspec.json.decode(store.load_state("why") or b"{}", type=dict[str, Deferred])


async def test_caps_per_model_hold_for_the_default_login() -> None:
    async with EngineHarness(works, pool=10, limits={"anthropic/*/opus-*": 4}) as harness:
        harness.add_claude("night", 10, accounts=())
        await harness.run(10.0)

        assert len(harness.running()) == 4
        assert waits(harness.store)[f"night {LOGIN}"].detail == "opus-4-6 at its cap (4/4) on default"
        assert {harness.unit(unit).account for unit in harness.running()} == {LOGIN}


async def test_a_spent_window_of_the_default_login_parks_its_units_and_closes_its_account() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=2) as harness:
        harness.add_claude("night", 3, accounts=())
        await harness.run(60.0)

        assert {window.state for window in harness.scope(LOGIN).windows} == {"closed"}
        assert (harness.unit("night/u0").account, harness.unit("night/u0").conversation_id) == (LOGIN, "talk-u0")

        await harness.run(HOUR)
        assert set(harness.states().values()) == {"done"}


async def test_an_early_reopening_wakes_the_units_of_the_default_login() -> None:
    window = Window(left=0, resets_at=NOW + 4 * HOUR)
    async with house_with(window, pool=4) as harness:
        harness.add_claude("night", 4, accounts=())
        await harness.run(60.0)
        window.left = 100

        await harness.run(2 * HOUR)

        assert set(harness.states().values()) == {"done"}


async def test_an_early_reopening_wakes_the_units_of_a_command() -> None:
    is_open = False

    def script(_: Launch) -> Run:
        if is_open:
            return Run(seconds=60.0)
        return Run(stderr="You've hit your usage limit. Try again at 5:00 AM.\n", exit_code=1)

    async with EngineHarness(script, pool=4) as harness:
        harness.add("night", 4)
        await harness.run(60.0)
        assert [window.state for window in harness.scope("campaign:night").windows] == ["closed"]
        is_open = True

        await harness.run(2 * HOUR)

        assert set(harness.states().values()) == {"done"}


async def test_the_limit_of_one_command_campaign_does_not_stop_another() -> None:
    def script(launch: Launch) -> Run:
        if launch.env["PACELINE_UNIT"].startswith("asks/"):
            return Run(stderr="You've hit your usage limit. Try again at 5:00 AM.\n", exit_code=1)
        return Run(seconds=60.0)

    async with EngineHarness(script, pool=4) as harness:
        harness.add("asks", 10)
        harness.add("local", 10)

        await harness.run(HOUR)

        assert {state for unit, state in harness.states().items() if unit.startswith("local/")} == {"done"}
        assert {state for unit, state in harness.states().items() if unit.startswith("asks/")} == {"todo"}


async def test_conversations_of_the_default_login_continue_there_after_the_plan_named_accounts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "paceline.db")
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=8, store=store) as harness:
        harness.add_claude("night", 6, accounts=())
        await harness.run(60.0)
        harness.change("night", accounts=("max-1",))
        harness.store.add_campaign(harness.store.campaigns()[0], [], update=False, now=NOW)

        await harness.run(HOUR)

        assert set(harness.states().values()) == {"done"}
        assert {harness.unit(unit).account for unit in harness.states()} == {LOGIN}


async def test_new_units_run_only_where_the_plan_says() -> None:
    async with EngineHarness(works, pool=8) as harness:
        harness.add_claude("night", 6, accounts=())
        harness.change("night", accounts=("max-1",))
        await harness.run(HOUR)

        assert {harness.unit(unit).account for unit in harness.states()} == {"max-1"}


async def test_units_of_an_earlier_version_get_the_account_of_their_agents_login() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0), pool=2) as harness:
        harness.add_claude("night", 2, accounts=())
        await harness.run(60.0)
        await harness.stop()
        harness.store.rename_account("night", LOGIN, "")  # as they were stored

        harness.engine = harness.new_engine()
        await harness.run(HOUR)

        assert set(harness.states().values()) == {"done"}
        assert {harness.unit(unit).account for unit in harness.states()} == {LOGIN}


async def test_nothing_is_waited_for_when_only_stranded_conversations_are_left() -> None:
    async with house_with(Window(left=0, resets_at=NOW + 1200.0)) as harness:
        harness.add_claude("night", 1)
        await harness.run(60.0)
        harness.change("night", accounts=("max-2",))
        await harness.run(HOUR)

        assert harness.states() == {"night/u0": "todo"}
        assert harness.engine.is_idle()

        harness.store.forget_conversation("night/u0")
        await harness.run(HOUR)
        assert (harness.unit("night/u0").state, harness.unit("night/u0").account) == ("done", "max-2")


async def test_a_default_login_is_never_billed_unless_the_campaign_accepts_it() -> None:
    async with EngineHarness(works) as harness:
        harness.add_claude("night", 1, accounts=())
        harness.add_claude("paid", 1, accounts=(), allow_metered=True, env_pass=("ANTHROPIC_API_KEY",))
        await harness.run(1.0)

        keys = {each.env["PACELINE_UNIT"]: each.env.get("ANTHROPIC_API_KEY") for each in harness.executor.started}
        assert keys == {"night/u0": None, "paid/u0": "sk-secret"}


async def test_a_window_of_the_login_holds_all_campaigns_on_it() -> None:
    async with EngineHarness(works) as harness:
        harness.add_claude("first", 1, accounts=())
        await harness.run(90.0)
        harness.engine.limiter.report(LOGIN, QuotaClosed(resets_at=NOW + HOUR, window="5h", confidence=1.0))
        harness.add_claude("second", 2, accounts=())
        await harness.run(120.0)

        assert harness.states()["second/u0"] == "todo"
        assert waits(harness.store)[f"second {LOGIN}"].reason == "window_closed"
