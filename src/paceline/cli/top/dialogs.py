"""The dialogs: a value to type, a question, the list of keys. Each returns a value."""

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from paceline.cli.top.row_text import plain

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
