"""`top` against a real home: what it shows is what is stored, and its keys give the orders of the commands."""

import asyncio
import contextlib
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import PATIENCE_SECONDS, Workspace, finish, park
from textual.pilot import Pilot
from textual.widgets import Input, Static

from paceline.cli.top.app import TopApp, UnitScreen
from paceline.cli.top.table import LiveTable
from paceline.core.signals import BillingStop, QuotaClosed, RateLimited, Signal
from paceline.core.values.scopes import SESSIONS
from paceline.core.values.session_output import Tokens
from paceline.daemon.home import Home, open_home
from paceline.engine.capacity.governor_state import load_governor, save_governor
from paceline.events import Event
from paceline.settings import governor_settings
from paceline.store import Campaign, SpendRow, UnitSpec
from paceline.views import units
from paceline.views.status import read_status_summary

ACCOUNTS = """
[limits]
"anthropic/max-1" = 8
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
"""
NARROW, WIDE = (80, 24), (200, 50)


class View:
    """The app in a terminal that is no terminal, and its home."""

    def __init__(self, app: TopApp, pilot: "Pilot[None]", home: Home) -> None:
        self.app = app
        self.home = home
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """The keys, and what the app makes of them, shown."""
        await self._pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Until orders that are under way are done, and a look that came after them is shown."""
        await self._pilot.pause()
        await self.app.refresh_view()
        await self._pilot.pause()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_so():
                await self.settle()

    def table(self, name: str) -> LiveTable:
        return self.app.screen_stack[0].query_one(f"#{name}", LiveTable)

    def row(self, name: str, key: str) -> str:
        """A row as words with single spaces."""
        (row,) = [row for row in self.table(name).rows if row.key == key]
        return " ".join(" ".join(cell.plain for cell in row.cells).split())

    async def choose(self, name: str, key: str) -> None:
        """Move the cursor of a pane to a row."""
        self.table(name).go_to(self.keys(name).index(key))
        await self.settle()

    def keys(self, name: str) -> list[str]:
        return [row.key for row in self.table(name).rows]

    @property
    def strip(self) -> str:
        return str(self.app.screen_stack[0].query_one("#strip", Static).render())

    @property
    def screen(self) -> str:
        """Every line that is drawn."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)

    def campaign(self, name: str) -> Campaign:
        (campaign,) = [each for each in self.home.store.campaigns() if each.name == name]
        return campaign


@contextlib.asynccontextmanager
async def watching(size: tuple[int, int] = WIDE) -> AsyncIterator[View]:
    with open_home() as home, open_home() as own:
        app = TopApp(own, every=3600.0)
        async with app.run_test(size=size, notifications=True) as pilot:
            view = View(app, pilot, home)
            await view.settle()
            yield view


def run_to_its_end(workspace: Workspace, plan: Path) -> None:
    """In a process of its own: an event loop runs here already."""
    finish(workspace.start("run", plan))


def teach(*reports: tuple[str, Signal]) -> None:
    """As an engine stores what it has learnt."""
    now = time.time()
    with open_home() as home:
        governor = load_governor(home.store, governor_settings(home.settings), now)
        for scope, signal in reports:
            governor.report(scope, signal, now=now)
        save_governor(home.store, governor)


# -- what it shows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, WIDE, (40, 10), (400, 100)])
async def test_an_empty_home_says_what_to_do_next(workspace: Workspace, size: tuple[int, int]) -> None:
    async with watching(size) as view:
        assert "no engine" in view.strip
        assert "none yet: paceline run PLAN" in view.screen


async def test_the_strip_has_the_numbers_of_the_store(workspace: Workspace) -> None:
    run_to_its_end(workspace, workspace.plan("true", "a", "b", name="first"))
    run_to_its_end(workspace, workspace.plan("exit 3", "a", name="bad", head="max_attempts = 1"))
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    park(until=time.time() + 7200)

    async with watching() as view:
        status = read_status_summary(view.home.read_fleet(time.time()), None, None)
        words = " ".join(view.strip.split())

    assert f"pool {status.pool.sessions} running 0 waiting 2 parked 1 done 2/6 failed 1" in words
    assert re.search(r"next resume \d\d:\d\d in (2:00:00|1:59:\d\d)", words)
    assert re.search(r"now \d\d:\d\d:\d\d .* done/h 2$", words)


KEYS = """
[limits]
"anthropic/key-a" = 3
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
[accounts.key-b]
provider = "anthropic"
kind = "metered"
key_env = "KEY_B"
"""


def next_month() -> str:
    """When a budget of this month begins again, as `top` says it."""
    today = datetime.now(UTC)
    first = (today.replace(day=28) + timedelta(days=4)).replace(day=1, hour=0, minute=0)
    return f"{first:{'%H:%M' if first - today < timedelta(days=1) else '%a %d %b %H:%M'}}"


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_a_home_with_only_a_gateway_shows_accounts_keys_and_their_cost(
    workspace: Workspace, size: tuple[int, int]
) -> None:
    workspace.write("paceline.toml", KEYS)
    for name in ("search", "trial", "old"):
        workspace.run("keys", "create", name, "--weight", "2", "--parallel", "4", "--budget", "$50/month")
    workspace.run("keys", "revoke", "old")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    with open_home() as home:
        created = {each.key.name: each.key.created_at for each in home.store.client_keys()}
        for key, cost in (("search", 2.25), ("trial", 60.0), ("old", 1.0), ("", 0.5)):
            at = created.get(key, 0.0)
            row = SpendRow(day=today, key=key, key_created_at=at, account="key-a", model="m", requests=3, billed=cost)
            home.store.add_spend([msgspec.structs.replace(row, tokens=Tokens(input=20_000))])

    async with watching(size) as view:
        screen, keys = view.screen, [view.row("keys", key) for key in view.keys("keys")]
        is_in_use = view.app.focused is view.table("capacity")

    assert keys == [
        "search 3 20.0k $2.25 2 $2.25 of $50/month",
        f"trial 3 20.0k $60.00 2 $60.00 of $50/month reached until {next_month()}",
        "(own token) 3 20.0k $0.50",
        "old revoked 3 20.0k $1.00",
    ]
    assert is_in_use
    for word in ("anthropic/key-a", "anthropic/key-b", "search", "trial", "$2.25"):
        assert word in screen
    assert re.search(r"^now \d\d:\d\d:\d\d ", screen, re.MULTILINE)
    assert "PLAN" not in screen


async def test_campaigns_have_their_counts_and_say_what_holds_them(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNTS)
    workspace.run(
        "add", workspace.plan("true", "a", "b", "c", head='priority = 7\naccounts = ["max-1"]\nmodel = "opus-4-6"')
    )
    park()
    resets_at = time.time() + 7200
    teach(("anthropic/max-1", QuotaClosed(resets_at=resets_at, window="5h")))

    async with watching() as view:
        row = view.row("campaigns", "docs")

    assert "0/3 2 1 0 7 –" in row
    assert "quota spent on max-1, resumes about " in row
    assert time.strftime("%H:%M", time.gmtime(resets_at)) in row  # with the day before it if that is tomorrow


async def test_capacity_tells_limits_pauses_windows_and_notices(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNTS)
    workspace.run("add", workspace.plan("true", "a", "b", head='accounts = ["max-1"]\nmodel = "opus-4-6"'))

    teach(
        ("anthropic/max-1", RateLimited(retry_after=600.0, cause="concurrency")),
        ("anthropic/max-1/opus-4-6", QuotaClosed(resets_at=time.time() + 7200, window="weekly", source="header")),
    )

    async with watching((300, 50)) as view:
        account = view.row("capacity", "anthropic/max-1")
        model = view.row("capacity", "anthropic/max-1/opus-4-6")

    assert account.startswith("anthropic/max-1 0/7 8 now 7 2 350 ms")
    assert re.search(r"paused (10:00|9:5\d);", account)
    assert "auto-reduced to 7 from 8 after a 429: restore (r)" in account
    assert re.search(r"weekly ████████ 100% spent resets \d\d:\d\d in (2:00:00|1:59:\d\d), tried \d\d:\d\d", model)
    assert "(said by a response header)" in model


async def test_what_runs_is_counted_in_its_scopes_and_every_number_is_the_stores(workspace: Workspace) -> None:
    plan = workspace.plan("while [ ! -e go ]; do sleep 0.05; done", "a", "b", "c", head="max_sessions = 2")
    engine = workspace.start("run", plan)

    async with watching() as view:
        await view.until(
            lambda: "at its limit" in " ".join(view.row("campaigns", key) for key in view.keys("campaigns"))
        )
        campaign = view.row("campaigns", "docs")
        pool, own = view.row("capacity", SESSIONS), view.row("capacity", "campaign:docs")
        units = [view.row("units", key).split()[:2] for key in view.keys("units")]
        started = [row.cells[0].plain for row in view.table("events").rows if "started" in row.cells[0].plain]
        (workspace.folder / "go").touch()
        await view.until(lambda: "done 3/3" in view.strip)
        await view.until(lambda: "no engine" in view.strip)

    assert "0/3 2 1 0 0 0 – campaign:docs at its limit (2/2)" in campaign
    assert pool.startswith("sessions 2/4 4 1")
    assert own.startswith("campaign:docs 2/2 2 1")
    assert units == [["docs/a", "running"], ["docs/b", "running"], ["docs/c", "waiting"]]
    assert len(started) == 2
    assert engine.wait(PATIENCE_SECONDS) == 0


async def test_events_come_live_at_the_end_and_a_filter_leaves_those_that_match(workspace: Workspace) -> None:
    run_to_its_end(workspace, workspace.plan("true", "a"))

    async with watching() as view:
        before = view.keys("events")
        view.home.store.append_events([Event("scope.paused", 1.0, "anthropic", None, {"until": 2.0, "cause": "429"})])
        await view.settle()
        after = view.keys("events")
        view.table("events").focus()
        await view.press("slash", *"ANTHROPIC", "enter")
        filtered = view.keys("events")
        await view.press("escape")

        assert after == [*before, str(view.home.last_event_id())]
        assert view.table("events").chosen == after[-1]
        assert filtered == after[-1:]
        assert view.keys("events") == after


# -- hostile text ------------------------------------------------------------------------------------

HOSTILE = "[bold red]x[/] [@click=app.quit]y[/] \x1b[2J\x1b]0;owned\x07 \u202eevil [/nonsense"


async def test_hostile_text_stays_text_everywhere(workspace: Workspace) -> None:
    name = "[red]c"
    with open_home() as home:
        specs = [UnitSpec(id=HOSTILE, prompt=HOSTILE)]
        home.store.add_campaign(Campaign(name=name), specs, update=False, now=time.time())
        home.store.move_units([f"{name}/{HOSTILE}"], "held", HOSTILE, now=time.time())
        home.store.append_events([Event("unit.held", time.time(), None, f"{name}/{HOSTILE}", {"reason": HOSTILE})])

    async with watching((300, 60)) as view:
        screens = [view.screen]
        await view.press("c")
        screens.append(view.screen)
        await view.press("n")
        await view.press("enter")
        screens.append(view.screen)
        await view.press("enter")
        await view.until(lambda: "prompt" in view.screen)
        screens.append(view.screen)

    for screen in screens:
        assert "[red]c" in screen
        assert "[bold red]x[/] [@click=app.quit]y[/]" in screen
        assert "[/nonsense" in screen
        assert not {"\x1b", "\x07", "\u202e"} & set(screen)


async def test_what_an_agent_printed_is_shown_without_what_steers_a_terminal(workspace: Workspace) -> None:
    script = r"printf 'plain\033]0;owned\007 \033[31mred\033[0m [blink]b[/blink]\n'; exit 3"
    run_to_its_end(workspace, workspace.plan(script, "a", head="max_attempts = 1"))

    async with watching() as view:
        view.table("units").focus()
        await view.press("enter")
        await view.until(lambda: "last screen" in view.screen)
        screen = view.screen

    assert "plain red [blink]b[/blink]" in screen
    assert "failed once, the last time with: exit code 3" in screen
    assert re.search(r"tries +1, attempts charged 1, parks 0", screen)
    assert "paceline retry docs/a runs it again" in screen


# -- keys --------------------------------------------------------------------------------------------


async def test_p_pauses_the_chosen_campaign_and_resumes_it(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "a", name="other"))

    async with watching() as view:
        await view.press("down", "p")
        paused = (view.campaign("docs").state, view.campaign("other").state)
        shown = view.row("campaigns", "other")
        await view.press("p")
        resumed = view.campaign("other").state

    assert paused == ("active", "paused")
    assert shown.startswith("other paused")
    assert resumed == "active"


async def test_capital_p_pauses_all_and_resumes_all(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "a", name="other"))
    workspace.run("pause", "docs")

    async with watching() as view:
        await view.press("P")
        paused = [campaign.state for campaign in view.home.store.campaigns()]
        await view.press("P")
        resumed = [campaign.state for campaign in view.home.store.campaigns()]

    assert paused == ["paused", "paused"]
    assert resumed == ["active", "active"]


async def test_o_sets_the_pool_and_nonsense_is_reported_and_changes_nothing(workspace: Workspace) -> None:
    async with watching() as view:
        await view.press("o")
        view.app.screen.query_one(Input).value = "9"
        await view.press("enter")
        await view.until(lambda: "pool 9" in " ".join(view.strip.split()))
        events = view.home.last_event_id()
        await view.press("o")
        view.app.screen.query_one(Input).value = "[b]many[/b]"
        await view.press("enter")
        await view.until(lambda: "'[b]many[/b]' is not a limit" in view.screen)
        await view.press("o", "escape")

        assert view.home.last_event_id() == events
        assert workspace.run_json("status")["pool"]["sessions"] == 9


async def test_l_limits_the_chosen_scope_and_default_is_the_settings_again(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNTS)

    async with watching() as view:
        view.table("capacity").focus()
        await view.choose("capacity", "anthropic/max-1")
        limits = []
        for text in ("3", "default"):
            await view.press("l")
            view.app.screen.query_one(Input).value = text
            await view.press("enter")
            await view.settle()
            limits.append(view.home.offline_state(time.time()).governor.get_limit("anthropic/max-1"))

    assert limits == [3, 8]


async def test_r_restores_the_chosen_scope(workspace: Workspace) -> None:
    workspace.write("paceline.toml", ACCOUNTS)
    teach(("anthropic/max-1", BillingStop(detail="log in again")))

    async with watching() as view:
        held = view.row("capacity", "anthropic/max-1")
        view.table("capacity").focus()
        await view.choose("capacity", "anthropic/max-1")
        await view.press("r")
        await view.settle()
        restored = view.row("capacity", "anthropic/max-1")

    assert "held: log in again" in held
    assert "held" not in restored


async def test_c_cancels_only_after_a_yes(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))

    async with watching() as view:
        await view.press("c", "n")
        spared = view.home.store.counts()["docs"]
        await view.press("c")
        asked = view.screen
        await view.press("y")
        await view.until(lambda: view.campaign("docs").state == "cancelled")
        counts = view.home.store.counts()["docs"]

    assert spared.todo == 2
    assert "Cancel docs?" in asked
    assert (counts.todo, counts.cancelled) == (0, 2)


async def test_without_anything_to_choose_the_keys_say_so(workspace: Workspace) -> None:
    async with watching() as view:
        await view.press("p")

        assert "there is no campaign to choose" in view.screen


async def test_tab_goes_round_the_panes_and_the_one_in_use_has_the_room(workspace: Workspace) -> None:
    async with watching(NARROW) as view:
        heights = []
        for _ in range(5):
            focused = view.app.focused
            assert focused is not None
            heights.append((focused.id, focused.size.height))
            await view.press("tab")

    names = ["campaigns", "capacity", "units", "events", "campaigns"]
    assert heights == [(name, 24 - 2 - 1 - 1 - 3 * 4) for name in names]


async def test_help_lists_the_keys_and_q_quits(workspace: Workspace) -> None:
    async with watching() as view:
        await view.press("question_mark")
        shown = view.screen
        await view.press("escape", "q")

        assert "set the pool: concurrent sessions" in shown
        assert view.app.return_code == 0


# -- units -------------------------------------------------------------------------------------------


async def test_units_are_chosen_by_campaign_and_state(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b", "c"))
    workspace.run("add", workspace.plan("true", "x", name="other"))
    park()

    async with watching() as view:
        view.table("units").focus()
        shown = []
        for words in ("docs", "parked", "docs waiting", "other done"):
            await view.press("slash")
            view.app.screen.query_one("#search", Input).value = words
            await view.press("enter")
            await view.settle()
            shown.append(view.keys("units"))
        await view.press("escape")
        await view.settle()
        everything = view.keys("units")

    assert shown == [["docs/a", "docs/b", "docs/c"], ["docs/a"], ["docs/b", "docs/c"], []]
    assert everything == ["docs/a", "docs/b", "docs/c", "other/x"]


async def test_a_filter_that_names_a_unit_opens_it_and_a_part_of_names_leaves_those(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "alpha", "alphabet", "beta"))

    async with watching() as view:
        view.table("units").focus()
        await view.press("slash", *"PHA", "enter")
        await view.settle()
        parts, title = view.keys("units"), view.screen
        await view.press("slash", *"alpah", "enter")
        await view.settle()
        none, empty = view.keys("units"), view.screen
        await view.press("slash", *"docs/alpha", "enter")
        await view.until(lambda: "do alpha" in view.screen)
        shown = view.screen

    assert (parts, none) == (["docs/alpha", "docs/alphabet"], [])
    assert "units 1-2 with 'PHA'" in title
    assert "there are none of these; esc shows all" in empty
    assert "no engine runs" in shown


async def test_a_search_goes_on_until_it_finds_something(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "PAGE_UNITS", 2)
    monkeypatch.setattr(units, "MOST_EXAMINED_ALONE", 2)
    workspace.run("add", workspace.plan("true", *(f"u{number}" for number in range(9)), "last"))

    async with watching() as view:
        view.table("units").focus()
        await view.press("slash", *"las", "enter")
        await view.until(lambda: view.keys("units") == ["docs/last"])


async def test_t_sorts_by_each_column_and_capital_t_the_other_way(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "x", "y", name="two"))
    workspace.run("add", workspace.plan("true", *(f"u{number}" for number in range(10)), name="an-ten"))

    async with watching() as view:
        orders = [view.keys("campaigns")]
        await view.press("t")
        orders.append(view.keys("campaigns"))
        assert "campaign▲" in view.screen
        await view.press("T")
        orders.append(view.keys("campaigns"))
        await view.press(*"tttt")
        assert "wait▲" in view.screen
        orders.append(view.keys("campaigns"))
        await view.press(*"tttttt")
        orders.append(view.keys("campaigns"))

    assert orders == [
        ["docs", "two", "an-ten"],
        ["an-ten", "docs", "two"],
        ["two", "docs", "an-ten"],
        ["docs", "two", "an-ten"],
        ["docs", "two", "an-ten"],
    ]


async def test_capital_r_tries_the_chosen_unit_again(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    workspace.run("cancel", "docs/b")

    async with watching() as view:
        view.table("units").focus()
        await view.press("slash", *"cancelled", "enter")
        await view.settle()
        await view.press("R")
        await view.until(lambda: "docs/b waits to be tried again" in view.screen)

        assert view.home.store.counts()["docs"].todo == 2


async def test_text_is_found_in_the_output_of_a_unit(workspace: Workspace) -> None:
    run_to_its_end(workspace, workspace.plan("seq 1001 1200; echo the Needle; seq 2001 2100; echo needle two", "a"))

    async with watching(NARROW) as view:
        view.table("units").focus()
        await view.press("enter")
        await view.until(lambda: "docs/a" in view.screen)
        await view.press("slash", *"needle", "enter")
        await view.until(lambda: "the Needle" in view.screen)
        await view.press("n")
        await view.until(lambda: "needle two" in view.screen)
        await view.press("N")
        await view.until(lambda: "the Needle" in view.screen)
        await view.press("slash", *"needle in hay", "enter")
        await view.until(lambda: "is not in it" in view.screen)
        await view.press("escape")

        assert not isinstance(view.app.screen, UnitScreen)


async def test_enter_on_a_campaign_shows_its_units_and_s_goes_through_the_states(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "x", name="other"))

    async with watching() as view:
        await view.press("down", "enter")
        of_other = view.keys("units")
        await view.press("s")
        await view.settle()
        running = view.keys("units")

        assert of_other == ["other/x"]
        assert running == []
        assert view.app.focused is view.table("units")


async def test_the_chosen_row_stays_chosen_and_on_its_line_while_units_move_past_it(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", *(f"u{number:03d}" for number in range(100))))

    async with watching() as view:
        units = view.table("units")
        units.focus()
        await view.press(*["down"] * 40)
        line = units.region.y + 2 + 40 - units._top
        park(5)
        with open_home() as home:
            home.store.claim_units(
                "docs", "", 3, attempt_ids=["a", "b", "c"], lease_until=time.time() + 60, now=time.time()
            )
        await view.settle()
        drawn = view.screen.splitlines()[line]

        assert view.keys("units")[0] == "docs/u005"
        assert units.chosen == "docs/u040"
        assert "docs/u040" in drawn


async def test_a_hundred_thousand_units_are_paged_both_ways(workspace: Workspace) -> None:
    with open_home() as home:
        specs = (UnitSpec(id=f"u{number:06d}") for number in range(100_000))
        home.store.add_campaign(Campaign(name="big", created_at=1.0), specs, update=False, now=1.0)

    async with watching(NARROW) as view:
        view.table("units").focus()
        await view.press("end", "down")
        await view.settle()
        second = (view.keys("units")[0], view.table("units").chosen, "201-400 of 100,000" in view.screen)
        await view.press("up")
        await view.settle()
        first = (view.keys("units")[0], view.table("units").chosen)

    assert second == ("big/u000200", "big/u000200", True)
    assert first == ("big/u000000", "big/u000199")


# -- trouble -----------------------------------------------------------------------------------------


async def test_a_store_that_cannot_be_read_is_reported_and_what_was_shown_stays(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    async with watching() as view:
        with contextlib.closing(sqlite3.connect(workspace.home / "paceline.db")) as connection:
            connection.execute("ALTER TABLE events RENAME TO hidden")
            await view.settle()
            trouble, campaigns = view.strip, view.keys("campaigns")
            connection.execute("ALTER TABLE hidden RENAME TO events")
        await view.settle()

        assert "no such table: events" in trouble
        assert campaigns == ["docs"]
        assert "no such table" not in view.strip


async def test_a_store_that_cannot_be_read_is_reported_over_a_unit_too(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))

    async with watching() as view:
        view.table("units").focus()
        await view.press("enter")
        screen = view.app.screen
        assert isinstance(screen, UnitScreen)
        with contextlib.closing(sqlite3.connect(workspace.home / "paceline.db")) as connection:
            connection.execute("ALTER TABLE events RENAME TO hidden")
            await screen.refresh_view()
            await view.settle()
            trouble = view.screen
            connection.execute("ALTER TABLE hidden RENAME TO events")
        await screen.refresh_view()
        await view.settle()

        assert "no such table: events" in trouble
        assert "no such table" not in view.screen
        assert "docs/a" in view.screen


def test_without_a_terminal_it_is_refused(workspace: Workspace) -> None:
    refused = workspace.run("top", code=2)

    assert "needs a terminal" in refused.output
    assert "paceline status --json" in refused.output


async def test_a_deleted_campaign_takes_its_filter_with_it(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a"))
    workspace.run("add", workspace.plan("true", "x", name="other"))

    async with watching() as view:
        await view.press("enter")
        view.home.store.delete_campaign("docs")
        await view.settle()
        await view.settle()

        assert view.keys("units") == ["other/x"]
        assert view.keys("campaigns") == ["other"]
        assert "units 1-1 of 1 ─" in view.screen
