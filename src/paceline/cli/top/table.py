"""A table that is shown anew every second and stays where it is: the chosen row and the place in the list are kept.

It draws only the lines that are seen, fits its columns to the width, and takes cells as text and nothing else: what
an agent printed can neither be read as markup nor steer the terminal.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from paceline.cli.output import one_line

GAP = 2
CHOSEN = Style(reverse=True)


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """`rank` 0 is always shown; where there is no room the highest goes first. One with `least` may be cut to that."""

    title: str
    right: bool = False
    rank: int = 0
    least: int | None = None


class Row(msgspec.Struct, frozen=True):
    """`key` is what the row is about, and stays the same while its cells change."""

    key: str
    cells: tuple[Text, ...]


class LiveTable(Widget, can_focus=True):
    """Title, column names, rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "turn(-1)", "page up", show=False),
        Binding("pagedown,space", "turn(1)", "page down", show=False),
        Binding("home,g", "jump(0)", "first", show=False),
        Binding("end,G", "jump(-1)", "last", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class Chosen(Message):
        """Enter or a second click on a row."""

        def __init__(self, table: "LiveTable", key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Moved(Message):
        """Another row was chosen, or the same one in a table that is in use again."""

    class Beyond(Message):
        """Someone wants to go past the first (-1) or the last (1) row."""

        def __init__(self, table: "LiveTable", direction: int) -> None:
            super().__init__()
            self.table = table
            self.direction = direction

    def __init__(self, name: str, columns: Sequence[Column], *, follows: bool = False) -> None:
        """One that `follows` keeps to its last row until someone moves away from it."""
        super().__init__(id=name)
        self._columns = tuple(columns)
        self._head_lines = 2 if any(column.title for column in columns) else 1
        self._follows = follows
        self._rows: list[Row] = []
        self._at = 0
        self._top = 0
        self._is_pinned = False
        self._title = name
        self._empty = ""

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    @property
    def chosen(self) -> str | None:
        """The key of the row that the cursor is on."""
        return self._rows[self._at].key if self._rows else None

    @property
    def last_words(self) -> Text:
        """The last cell of the chosen row, which is the first to be cut where there is no room."""
        return self._rows[self._at].cells[-1] if self._rows else Text("")

    def fill(self, rows: Sequence[Row], *, title: str, empty: str) -> None:
        """Show these; `empty` says what to do where there are none.

        Once someone has moved, the chosen row stays chosen and on its line of the screen, wherever it is in the list.
        """
        key = self.chosen
        self._rows = list(rows)
        self._title, self._empty = one_line(f"{self.id} {title}"), empty
        if self._is_pinned:
            place = next((place for place, row in enumerate(self._rows) if row.key == key), self._at)
            self._at, self._top = place, self._top + place - self._at
        else:
            self._at = len(self._rows) - 1 if self._follows else 0
        self._keep_in_sight()

    def go_to(self, place: int) -> None:
        """Choose the row at this place; -1 is the last."""
        last = len(self._rows) - 1
        self._at = max(0, min(place, last)) if place >= 0 else last
        self._is_pinned = self._at != (last if self._follows else 0)
        self._keep_in_sight()
        self.post_message(self.Moved())

    def _keep_in_sight(self) -> None:
        self._at = max(0, min(self._at, len(self._rows) - 1))
        self._top = max(0, min(self._top, self._at, len(self._rows) - self._room))
        self._top = max(self._top, self._at - self._room + 1)
        self.refresh()

    @property
    def _room(self) -> int:
        return max(1, self.size.height - self._head_lines)

    # -- moving ----------------------------------------------------------------------------------

    def action_move(self, steps: int) -> None:
        if 0 <= self._at + steps < len(self._rows):
            self.go_to(self._at + steps)
        else:
            self.post_message(self.Beyond(self, steps))

    def action_turn(self, pages: int) -> None:
        is_at_edge = self._at == (0 if pages < 0 else len(self._rows) - 1)
        if is_at_edge:
            self.action_move(pages)
        else:
            self.go_to(max(0, self._at + pages * self._room))

    def action_jump(self, place: int) -> None:
        self.go_to(place)

    def action_choose(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Chosen(self, self.chosen))

    def on_click(self, event: events.Click) -> None:
        place = self._top + event.y - self._head_lines
        if event.y < self._head_lines or place >= len(self._rows):
            return
        self.go_to(place)
        if event.chain > 1:
            self.action_choose()

    def on_mouse_scroll_down(self) -> None:
        self.go_to(self._at + 1)

    def on_mouse_scroll_up(self) -> None:
        self.go_to(max(0, self._at - 1))

    def on_resize(self) -> None:
        self._keep_in_sight()

    def on_focus(self) -> None:
        self.refresh()
        self.post_message(self.Moved())

    def on_blur(self) -> None:
        self.refresh()

    # -- drawing ---------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._title_strip()
        if not self._rows:
            return self._strip(Text(f"  {self._empty}" if y == 1 else "", style="dim"))
        shown, widths = self._fit(self.size.width)
        if y < self._head_lines:
            titles = [Text(column.title, style="dim") for column in self._columns]
            return self._strip(self._line(titles, shown, widths))
        place = self._top + y - self._head_lines
        if place >= len(self._rows):
            return self._strip(Text(""))
        is_chosen = place == self._at and self.has_focus
        return self._strip(self._line(self._rows[place].cells, shown, widths), is_chosen=is_chosen)

    def _title_strip(self) -> Strip:
        title = Text(f" {self._title} ", style="bold reverse" if self.has_focus else "bold")
        rule = Text("─" * max(0, self.size.width - title.cell_len), style="dim")
        return self._strip(Text.assemble(title, rule))

    def _fit(self, width: int) -> tuple[list[int], list[int]]:
        """The columns that have room, and how wide each of them is."""
        seen = self._rows[self._top : self._top + self._room]
        natural = [
            max([cell_len(column.title), *(row.cells[number].cell_len for row in seen)])
            for number, column in enumerate(self._columns)
        ]
        least = [
            min(wanted, wanted if column.least is None else column.least)
            for wanted, column in zip(natural, self._columns, strict=True)
        ]
        shown = list(range(len(self._columns)))
        while _width(shown, least) > width and any(self._columns[each].rank for each in shown):
            shown.remove(max(shown, key=lambda each: self._columns[each].rank))
        spare = max(0, width - _width(shown, least))
        widths = []
        for each in shown:
            more = min(natural[each] - least[each], spare)
            spare -= more
            widths.append(least[each] + more)
        return shown, widths

    def _line(self, cells: Sequence[Text], shown: Sequence[int], widths: Sequence[int]) -> Text:
        line = Text(no_wrap=True)
        for place, (number, width) in enumerate(zip(shown, widths, strict=True)):
            cell = cells[number].copy()
            cell.truncate(width, overflow="ellipsis")
            blank = " " * (width - cell.cell_len)
            line.append(" " * GAP if place else "")
            parts = (Text(blank), cell) if self._columns[number].right else (cell, Text(blank))
            for part in parts:
                line.append_text(part)
        return line

    def _strip(self, text: Text, *, is_chosen: bool = False) -> Strip:
        if is_chosen:  # of one colour, as colours turned round are hard to read
            return Strip([Segment(text.plain, CHOSEN)]).adjust_cell_length(self.size.width, CHOSEN)
        style = self.rich_style
        segments = text.render(self.app.console, end="")
        strip = Strip([Segment(each.text, style + each.style if each.style else style) for each in segments])
        return strip.adjust_cell_length(self.size.width, style)


def _width(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[each] for each in shown) + GAP * max(0, len(shown) - 1)
