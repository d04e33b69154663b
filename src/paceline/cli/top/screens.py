"""The screens over the panes: a unit, live; a value to type, a question, the list of keys."""

from collections.abc import Awaitable, Callable
from typing import ClassVar
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from paceline.cli.output import STATE_STYLES, event_line, learnt_text, one_line, printable
from paceline.cli.top.cells import clock, countdown, plain
from paceline.cli.top.snapshot import UnitInspection
from paceline.errors import PacelineError
from paceline.events import Event
from paceline.views.units import UnitDetail
from paceline.views.why import Why

# -- dialogs; each returns a value --------------------------------------------------------------------

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


class AskScreen(ModalScreen[str | None]):
    """A question for one value. Returns None if it was left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave it")]

    def __init__(self, question: str, value: str, hint: str) -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(plain(self._question, "bold"))
            yield Input(self._value)
            yield Static(plain(f"{self._hint}; enter sets it, esc leaves it", "dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class ConfirmScreen(ModalScreen[bool]):
    """A question for yes or no. Everything but `y` is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q", "dismiss(False)", "no"),
    ]

    def __init__(self, question: str, detail: str) -> None:
        super().__init__()
        self._question, self._detail = question, detail

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(plain(self._question, "bold"))
            yield Static(plain(self._detail))
            yield Static(Text.assemble("\n", ("y", "bold"), " yes   ", ("n", "bold"), " no"))


class HelpScreen(ModalScreen[None]):
    """The list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss(None)", "close")]

    def compose(self) -> ComposeResult:
        lines = Table.grid(padding=(0, 2))
        for keys, what in HELP:
            lines.add_row(Text(keys, style="bold"), Text(what))
        with Vertical(classes="dialog help"):
            yield Static(lines)


# -- a unit ----------------------------------------------------------------------------------------

LONGEST_PROMPT = 2000
FOUND_STYLE = "reverse bold"
Read = Callable[[], Awaitable[UnitInspection | None]]


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

    def __init__(self, unit_id: str, read: Read, zone: ZoneInfo, now: Callable[[], float], every: float) -> None:
        super().__init__()
        self._unit_id = unit_id
        self._read = read
        self._zone = zone
        self._now = now
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
            detail = await self._read()
            shown = plain(f"{self._unit_id} was deleted") if detail is None else self._text(detail)
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

    # -- text --------------------------------------------------------------------------------------

    def _text(self, found: UnitInspection) -> Text:
        unit = found.unit
        text = Text.assemble((one_line(unit.id), "bold"), " ", (found.phase, STATE_STYLES.get(found.phase, "")))
        counts = f"{unit.tries}, attempts charged {unit.attempts}, parks {unit.parks}"
        facts = [("tries", counts), ("account", unit.account), ("host", unit.host), ("conversation", unit.session_id)]
        if unit.exit_code is not None:
            facts.append(("exit code", str(unit.exit_code)))
        for name, value in facts:
            if value:
                _add_fact(text, name, value)
        for why in found.whys:
            self._add_why(text, why)
        _add_section(text, "prompt", printable(unit.prompt[:LONGEST_PROMPT]))
        _add_section(text, "events", "\n".join(self._event_lines(unit)))
        if unit.attempt is not None:
            screen = (unit.screen or "nothing was printed") if found.has_output else "the output has been removed"
            _add_section(text, "last screen", screen)
        return text

    def _event_lines(self, unit: UnitDetail) -> list[str]:
        events = [Event(each.name, each.at, each.scope, unit.id, each.fields) for each in unit.history]
        return [event_line(event, self._zone) for event in events]

    def _add_why(self, text: Text, why: Why) -> None:
        _add_fact(text, "why", why.detail)
        now = self._now()
        since = None if why.since is None else f"{clock(why.since, now, self._zone)}, {countdown(now - why.since)} ago"
        until = None if why.until is None else f"{clock(why.until, now, self._zone)}, in {countdown(why.until - now)}"
        learnt = None if why.learnt is None else learnt_text(why.learnt, now)
        facts = (("where", why.scope), ("limit", learnt), ("since", since), ("until", until), ("to do", why.hint))
        for name, value in facts:
            if value is not None:
                _add_fact(text, name, value)


def _add_fact(text: Text, name: str, value: str) -> None:
    text.append(f"\n  {name:<13}", style="dim").append(one_line(value, 400))


def _add_section(text: Text, title: str, body: str) -> None:
    if body.strip():
        text.append(f"\n\n{title}\n", style="bold").append(body)
