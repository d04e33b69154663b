"""The live view: panes, keys, the screens over them, and the loop that reads the home once a second.

One thread of its own reads and writes the store, so that the screen always answers at once. Nothing is decided here:
keys give the same commands as the command line.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, TypeVar

import msgspec
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from paceline.cli.commands import control
from paceline.cli.commands.control import ControlResult
from paceline.cli.output import find_unit, one_line
from paceline.cli.top import cells
from paceline.cli.top.cells import KEPT_EVENTS, TopSnapshot, plain
from paceline.cli.top.table import LiveTable, Row
from paceline.core.values.scopes import SESSIONS
from paceline.daemon.home import Home
from paceline.engine.commands import find_campaign
from paceline.errors import PacelineError
from paceline.store import Unit
from paceline.views import units

# -- dialogs ------------------------------------------------------------------------------------------

HELP = (
    ("tab, shift+tab", "next pane, previous pane"),
    ("arrows, page up, page down", "move; past the last unit comes the next page"),
    ("enter", "open a unit; show the units of a campaign"),
    ("/", "filter the pane; for units: a campaign, a state, a part of an id, reason or account; in a unit: find text"),
    ("t, T", "sort the pane by the next column; the other way"),
    ("s", "units of the next state"),
    ("esc", "remove the filter"),
    ("p, P", "pause or resume the campaign; all campaigns"),
    ("c", "cancel the campaign (asks first)"),
    ("R", "try the chosen unit again"),
    ("o", "set the pool: concurrent sessions"),
    ("l", "set the limit of the scope"),
    ("r", "restore the scope: forget what was learned, lift a hold"),
    ("q", "quit; running sessions continue"),
)


class Dialog(ModalScreen[str | None]):
    """Lines over the screen; with `field`, a text to change below the first. Returns that text, or `y` for yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss('y')", "yes"),
        Binding("n,escape,question_mark,q,enter", "dismiss(None)", "no, close"),
    ]

    def __init__(self, *lines: Text | Table, field: str | None = None) -> None:
        super().__init__()
        self._shown: list[Widget] = [Static(each) for each in lines]
        if field is not None:
            self._shown.insert(1, Input(field))

    def compose(self) -> ComposeResult:
        yield Vertical(*self._shown, classes="dialog")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


# -- a unit ----------------------------------------------------------------------------------------

FOUND_STYLE = "reverse bold"


class UnitScreen(ModalScreen[None]):
    """The screen. `read` reads the unit outside the event loop. It is modal: keys do not act on hidden panes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "leave", "back"),
        Binding("slash", "find", "find"),
        Binding("n", "next(1)", "next", show=False),
        Binding("N", "next(-1)", "previous", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("home,g", "edge(0)", "first line"),
        Binding("end,G", "edge(1)", "last line"),
    ]

    def __init__(self, read: Callable[[], Awaitable[Text]], every: float) -> None:
        super().__init__()
        self._read = read
        self._every = every
        self._shown = Text("reading ...")
        self._words = ""
        self._found_at = -1

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._shown, id="detail")
        yield Input(id="find", placeholder="find", select_on_focus=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.set_interval(self._every, self._start_refresh)
        self._start_refresh()

    def _start_refresh(self) -> None:
        self.run_worker(self.refresh_view(), exclusive=True)

    async def refresh_view(self) -> None:
        """Read the unit again, and draw it if something has changed."""
        try:
            shown = await self._read()
        except (PacelineError, OSError) as error:
            shown = plain(error, "bold red")  # until the next refresh
        if shown != self._shown:
            self._shown = shown
            self._draw()

    def _draw(self) -> None:
        text = self._shown.copy()
        if self._words:
            text.highlight_words([self._words], FOUND_STYLE, case_sensitive=False)
        self.query_one("#detail", Static).update(text)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_edge(self, is_end: int) -> None:
        view = self.query_one(VerticalScroll)
        view.scroll_end(animate=False) if is_end else view.scroll_home(animate=False)

    # -- finding text ------------------------------------------------------------------------------

    def action_leave(self) -> None:
        """Close the line for the text, or else the screen."""
        field = self.query_one("#find", Input)
        if field.has_class("-shown"):
            self._close_find(field)
        else:
            self.dismiss(None)

    def action_find(self) -> None:
        field = self.query_one("#find", Input)
        field.add_class("-shown")
        field.value = self._words
        field.focus()

    def _close_find(self, field: Input) -> None:
        field.remove_class("-shown")
        self.query_one(VerticalScroll).focus()

    @on(Input.Submitted, "#find")
    def _find(self, event: Input.Submitted) -> None:
        self._close_find(event.input)
        self._words, self._found_at = event.value.strip(), -1
        self._draw()
        self.action_next(1)

    def action_next(self, step: int) -> None:
        """Go to the next line, or the one before, that contains the text; after the last comes the first."""
        if not self._words:
            return
        lines = self._shown.wrap(self.app.console, max(1, self.query_one("#detail", Static).size.width))
        places = [place for place, line in enumerate(lines) if self._words.casefold() in line.plain.casefold()]
        if not places:
            self.notify(f"{one_line(self._words)!r} is not in it", severity="warning", markup=False)
            return
        later = [place for place in places if (place - self._found_at) * step > 0]
        self._found_at = (min(later) if step > 0 else max(later)) if later else places[0 if step > 0 else -1]
        self.query_one(VerticalScroll).scroll_to(y=self._found_at, animate=False)


ALL_UNITS = units.UnitQuery(order="attention")
REFRESH_SECONDS = 1.0
"""Fast enough for countdowns in seconds, and a small load on the store."""
THEME = "ansi-dark"
"""The terminal's own colours and background, light or dark."""

INSTEAD = "capacity"
"""The pane that is used instead of one that went."""


def _pause_or_resume(home: Home, name: str) -> ControlResult:
    is_paused = find_campaign(home.store, name).state == "paused"
    return control.resume(home, [name]) if is_paused else control.pause(home, [name])


ROW_CHANGES: Final[dict[str, tuple[str, str, Callable[[Home, str], ControlResult]]]] = {
    "pause": ("campaigns", "campaign", _pause_or_resume),
    "restore": ("capacity", "scope", lambda home, scope: control.restore(home, scope, known=[scope])),
    "retry": ("units", "unit", control.retry_failed),
}
"""What the keys do to the chosen row of a pane, and what such a row is called."""

T = TypeVar("T")


def _unit_named(home: Home, name: str) -> Unit | None:
    try:
        return find_unit(home.store, name)
    except PacelineError:
        return None  # a part of a name, or of several


class TopApp(App[None]):
    """The terminal application of `paceline top`."""

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (150, "-wide")]  # noqa: RUF012 (no class variable to the type checker)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "change('pause')", "pause/resume"),
        Binding("P", "pause_all", "all", show=False),
        Binding("o", "pool", "pool"),
        Binding("l", "limit", "limit"),
        Binding("r", "change('restore')", "restore"),
        Binding("c", "cancel", "cancel"),
        Binding("R", "change('retry')", "retry unit"),
        Binding("slash", "search", "filter"),
        Binding("s", "next_phase", "state"),
        Binding("escape", "clear", "no filter", show=False),
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, home: Home, *, every: float = REFRESH_SECONDS) -> None:
        super().__init__()
        self.theme = THEME
        self._home = home
        self._every = every
        self._thread = ThreadPoolExecutor(1, "store")
        self._read_snapshot: Callable[[float], TopSnapshot] | None = None
        self._snapshot: TopSnapshot | None = None
        self._trouble: str | None = None
        self._events: deque[Row] = deque(maxlen=KEPT_EVENTS)
        self._words: dict[str, str] = {}
        self._choice = ALL_UNITS
        self._page_starts = [units.PageStart()]
        self._page: units.CountedPage | None = None
        self._landing: int | None = None
        self._is_stale = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield Static(Text("reading ..."), id="strip")
        with Container(id="panes"):
            yield LiveTable("campaigns", cells.CAMPAIGN_COLUMNS)
            yield LiveTable("capacity", cells.CAPACITY_COLUMNS)
            yield LiveTable("keys", cells.KEY_COLUMNS)
            yield LiveTable("units", cells.UNIT_COLUMNS)
            yield LiveTable("events", cells.EVENT_COLUMNS, follows=True)
        yield Static(id="info")
        yield Input(id="search", placeholder="filter", select_on_focus=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._table("campaigns").add_class("-in-use").focus()
        self.run_worker(self._watch())

    def on_unmount(self) -> None:
        self._thread.shutdown(wait=True)

    # -- reading -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self.refresh_view()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_stale.wait(), self._every)
            self._is_stale.clear()

    async def refresh_view(self) -> None:
        """Read everything once and show it. If it cannot be read, show the error above the last values."""
        choice, start = self._choice, self._page_starts[-1]
        try:
            snapshot, page = await self._in_store_thread(lambda: self._read(choice, start))
        except PacelineError as error:
            self._trouble = str(error)
        else:
            self._snapshot, self._trouble = snapshot, None
            self._events.extend(snapshot.events)
            if page is None:
                self._choose(ALL_UNITS)
            elif (choice, start) == (self._choice, self._page_starts[-1]):  # else the page was turned meanwhile
                self._page = page
                if not page.units and page.following is not None:  # nothing among those that one page examines
                    self._page_starts[-1] = page.following
                    self._is_stale.set()
        self._show()

    def _read(self, choice: units.UnitQuery, start: units.PageStart) -> tuple[TopSnapshot, units.CountedPage | None]:
        """Read a snapshot and a page of units. There is no page if the chosen campaign was deleted."""
        if self._read_snapshot is None:
            self._read_snapshot = cells.snapshot_reader(self._home)
        snapshot = self._read_snapshot(time.time())
        is_there = choice.campaign in (None, *(row.key for row in snapshot.campaigns))
        return snapshot, units.read_counted_page(self._home.store, choice, start) if is_there else None

    async def _in_store_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- showing -----------------------------------------------------------------------------------

    def _table(self, name: str) -> LiveTable:
        return self.screen_stack[0].query_one(f"#{name}", LiveTable)

    def _show(self) -> None:
        strip = self.screen_stack[0].query_one("#strip", Static)
        if self._snapshot is None:
            strip.update(cells.plain(self._trouble or "", "bold red"))
            return
        snapshot = self._snapshot
        with self.batch_update():
            strip.update(cells.strip(snapshot, self._home.zone, self._trouble))
            self._fill("campaigns", snapshot.campaigns, f"none yet: {cells.START} adds one and runs it")
            self._fill("capacity", snapshot.scopes, "no limit is set and nothing is known about any scope")
            self._fill("keys", snapshot.keys, "none yet: paceline keys create NAME adds one")
            self._fill("events", list(self._events), "nothing has happened yet")
            self._show_units(snapshot.at)
            self._show_info()
            self._show_panes(snapshot)

    def _show_panes(self, snapshot: TopSnapshot) -> None:
        """Leave out the panes that have nothing to show. The focus goes to another one, unless a dialog has it."""
        screen, is_alone, has_keys = self.screen_stack[0], snapshot.is_gateway_alone, bool(snapshot.keys)
        screen.set_class(is_alone, "-calls")
        screen.set_class(has_keys, "-keys")
        shown = {"campaigns": not is_alone, "units": not is_alone, "keys": has_keys}
        for table in screen.query(LiveTable):
            table.display = shown.get(table.id or "", True)
        if self._in_use.display:
            return
        self._give_room(self._table(INSTEAD))
        if len(self.screen_stack) == 1:
            self._table(INSTEAD).focus()

    @on(LiveTable.Moved)
    def _show_info(self) -> None:
        """Show the last cell of the chosen row in full, because its pane may cut it."""
        table = self._in_use
        last_cell = next((row.cells[-1] for row in table.rows if row.key == table.chosen), Text(""))
        self.screen_stack[0].query_one("#info", Static).update(last_cell)

    def _fill(self, name: str, rows: Sequence[Row], empty: str) -> None:
        words = self._words.get(name, "").casefold()
        shown = [row for row in rows if words in " ".join(cell.plain for cell in row.cells).casefold()]
        title = f"{len(shown):,} of {len(rows):,} with {words!r}" if words else f"{len(rows):,}"
        self._table(name).fill(shown, title=title, empty="nothing matches; esc shows all" if words else empty)

    def _show_units(self, now: float) -> None:
        page, start = self._page, self._page_starts[-1]
        if page is None:
            return
        search = f"with {self._choice.search!r}" if self._choice.search else ""
        chosen = " ".join(each for each in (self._choice.campaign, self._choice.chosen, search) if each)
        first, last = start.before + 1, start.before + len(page.units)
        of_all = "" if page.total is None else f" of {page.total:,}"
        title = f"{first:,}-{last:,}{of_all} {chosen}" if page.units else f"0 {chosen}"
        rows = [cells.unit_row(unit, now, self._home.zone) for unit in page.units]
        empty = "there are none of these; esc shows all" if chosen else f"none yet: {cells.START} adds some"
        table = self._table("units")
        table.fill(rows, title=title, empty=empty)
        if self._landing is not None:
            table.go_to(self._landing)
            self._landing = None

    @on(DescendantFocus)
    def _use(self, event: DescendantFocus) -> None:
        """Give the pane that was focused last the most room, also while a dialog is open."""
        if isinstance(event.widget, LiveTable):
            self._give_room(event.widget)

    def _give_room(self, chosen: LiveTable) -> None:
        for table in self.screen_stack[0].query(LiveTable):
            table.set_class(table is chosen, "-in-use")

    @property
    def _in_use(self) -> LiveTable:
        return self.screen_stack[0].query_one("LiveTable.-in-use", LiveTable)

    # -- units: pages, filters, one of them ----------------------------------------------------------

    def _choose(self, choice: units.UnitQuery) -> None:
        self._choice, self._page_starts, self._page, self._landing = choice, [units.PageStart()], None, 0
        self._is_stale.set()

    @on(LiveTable.Beyond)
    def _turn_page(self, event: LiveTable.Beyond) -> None:
        if event.table.id != "units" or self._page is None:
            return
        if event.direction > 0 and self._page.following is not None:
            self._page_starts.append(self._page.following)
            self._landing = 0
        elif event.direction < 0 and len(self._page_starts) > 1:
            self._page_starts.pop()
            self._landing = -1
        self._is_stale.set()

    @on(LiveTable.Chosen)
    def _open(self, event: LiveTable.Chosen) -> None:
        if event.table.id == "units":
            self._open_unit(event.key)
        elif event.table.id == "campaigns":
            self._choose(msgspec.structs.replace(ALL_UNITS, campaign=event.key))
            self._table("units").focus()

    def _open_unit(self, unit_id: str) -> None:
        def read() -> Awaitable[Text]:
            return self._in_store_thread(lambda: cells.inspect_unit(self._home, unit_id, time.time()))

        self.push_screen(UnitScreen(read, self._every))

    def action_next_phase(self) -> None:
        """Show all units, then those of each state in turn."""
        order: tuple[units.UnitFilter | None, ...] = (None, *units.PHASES)
        following = order[(order.index(self._choice.chosen) + 1) % len(order)]
        self._choose(msgspec.structs.replace(self._choice, chosen=following))

    def action_search(self) -> None:
        search = self.screen_stack[0].query_one("#search", Input)
        search.add_class("-shown")
        search.value = self._words.get(self._in_use.id or "", "")
        search.focus()

    def action_clear(self) -> None:
        """Close the search line, or else remove the filter."""
        search = self.screen_stack[0].query_one("#search", Input)
        if search.has_class("-shown"):
            self._leave_search(search)
        elif self._in_use.id == "units":
            self._choose(ALL_UNITS)
        else:
            self._words.pop(self._in_use.id or "", None)
            self._show()

    def _leave_search(self, search: Input) -> None:
        search.remove_class("-shown")
        self._in_use.focus()

    @on(Input.Submitted, "#search")
    async def _search(self, event: Input.Submitted) -> None:
        self._leave_search(event.input)
        words = " ".join(event.value.split())
        if self._in_use.id == "units":
            await self._search_units(words)
        else:
            self._words[self._in_use.id or ""] = words
            self._show()

    async def _search_units(self, words: str) -> None:
        """Filter by campaign, state and a part of ids, reasons and accounts. The name of a unit opens it."""
        campaigns = [row.key for row in self._snapshot.campaigns] if self._snapshot else []
        campaign: str | None = None
        phase: units.UnitPhase | None = None
        searched = []
        for word in words.split():
            if (found := next((each for each in units.PHASES if each == word), None)) is not None:
                phase = found
            elif word in campaigns:
                campaign = word
            else:
                searched.append(word)
        if searched and (unit := await self._in_store_thread(lambda: _unit_named(self._home, words))) is not None:
            self._open_unit(unit.id)
            return
        self._choose(msgspec.structs.replace(ALL_UNITS, campaign=campaign, chosen=phase, search=" ".join(searched)))

    # -- commands ------------------------------------------------------------------------------------

    async def _try_in_store(self, work: Callable[[], T]) -> T | None:
        """Run work in the store thread. An error is shown as a notification."""
        try:
            return await self._in_store_thread(work)
        except PacelineError as error:
            self.notify(cells.plain(error).plain, severity="error", markup=False)
            return None

    async def _control(self, work: Callable[[], ControlResult]) -> None:
        """Give a command in the store thread, and show what it did."""

        def give() -> str:
            result = work()
            needs_one = result.needs_engine and self._home.engine_leader() is None
            return (
                f"{result.message}. No engine runs: this takes effect when one starts" if needs_one else result.message
            )

        message = await self._try_in_store(give)
        if message is not None:
            self.notify(cells.plain(message).plain, markup=False)
        self._is_stale.set()

    def _chosen(self, table: str, what: str) -> str | None:
        """Return the key of the row under the cursor of a pane, on which a command acts."""
        chosen = self._table(table).chosen
        if chosen is None:
            self.notify(f"there is no {what} to choose", severity="warning", markup=False)
        return chosen

    async def action_change(self, verb: str) -> None:
        """Change what the chosen row of the pane stands for."""
        pane, what, change = ROW_CHANGES[verb]
        if key := self._chosen(pane, what):
            await self._control(lambda: change(self._home, key))

    async def action_pause_all(self) -> None:
        """Pause all campaigns; if all are paused already, resume them."""

        def change() -> ControlResult:
            paused = control.pause(self._home, None)
            if paused.values["campaigns"]:
                return paused
            resumed = control.resume(self._home, None)
            none = ControlResult(message="there is no campaign to pause", values={}, needs_engine=False)
            return resumed if resumed.values["campaigns"] else none

        await self._control(change)

    def action_cancel(self) -> None:
        if name := self._chosen("campaigns", "campaign"):
            self.run_worker(self._cancel(name))

    async def _cancel(self, name: str) -> None:
        detail = "Its units that are not done will not run; running sessions are ended. `paceline retry` undoes it."
        yes_or_no = Text.assemble(plain(detail), "\n\n", ("y", "bold"), " yes   ", ("n", "bold"), " no")
        if await self.push_screen_wait(Dialog(plain(f"Cancel {name}?", "bold"), yes_or_no)) == "y":
            await self._control(lambda: control.cancel(self._home, name))

    def action_pool(self) -> None:
        question, hint = "How many sessions at once?", "a whole number, or none"
        self.run_worker(self._ask_limit(SESSIONS, question, hint, lambda size: control.resize_pool(self._home, size)))

    def action_limit(self) -> None:
        if scope := self._chosen("capacity", "scope"):
            question, hint = f"How many slots may {scope} hold?", "a whole number, none, or default"
            self.run_worker(
                self._ask_limit(scope, question, hint, lambda size: control.change_limit(self._home, scope, size))
            )

    async def _ask_limit(self, scope: str, question: str, hint: str, change: Callable[[str], ControlResult]) -> None:
        limits = self._snapshot.limits if self._snapshot else {}
        size = str(limits[scope]) if scope in limits else ""
        below = plain(f"{hint}; enter sets it, esc leaves it", "dim")
        answer = await self.push_screen_wait(Dialog(plain(question, "bold"), below, field=size.lower()))
        if answer is not None:
            await self._control(lambda: change(answer))

    def action_help(self) -> None:
        lines = Table.grid(padding=(0, 2))
        for keys, what in HELP:
            lines.add_row(Text(keys, style="bold"), Text(what))
        self.push_screen(Dialog(lines))
