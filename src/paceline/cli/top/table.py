"""A table that is filled again every second and keeps the chosen row and its position on the screen.

Textual's DataTable scrolls sideways instead: in 80 columns, what holds a campaign would be out of sight. This one draws
only the visible lines, fits its columns to the width, and sorts rows as people read their cells. Cells are
plain text: what an agent printed is neither read as markup nor can it control the terminal.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

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

# -- columns, fitted to a width -----------------------------------------------------------------------

GAP = 2


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column. Without room the highest `rank` is dropped first, 0 never. It may be cut to `least` cells."""

    title: str
    right: bool = False
    rank: int = 0
    least: int | None = None


def fit_columns(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> dict[int, int]:
    """Return the columns that have room for the visible rows, by number, and how wide each of them is."""
    natural = [
        max([cell_len(column.title), *(cells[number].cell_len for cells in rows)])
        for number, column in enumerate(columns)
    ]
    least = [
        min(wanted, wanted if column.least is None else column.least)
        for wanted, column in zip(natural, columns, strict=True)
    ]
    shown = list(range(len(columns)))
    while _width(shown, least) > width and any(columns[each].rank for each in shown):
        shown.remove(max(shown, key=lambda each: columns[each].rank))
    spare = max(0, width - _width(shown, least))
    widths = {}
    for each in shown:
        more = min(natural[each] - least[each], spare)
        spare -= more
        widths[each] = least[each] + more
    return widths


def line_of(cells: Sequence[Text], columns: Sequence[Column], widths: Mapping[int, int]) -> Text:
    """Return the shown cells as one line, each cut or filled to its width."""
    line = Text(no_wrap=True)
    for place, (number, width) in enumerate(widths.items()):
        cell = cells[number].copy()
        cell.truncate(width, overflow="ellipsis")
        blank = Text(" " * (width - cell.cell_len))
        line.append(" " * GAP if place else "")
        for part in (blank, cell) if columns[number].right else (cell, blank):
            line.append_text(part)
    return line


def _width(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[each] for each in shown) + GAP * max(0, len(shown) - 1)


# -- rows and their order -----------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True):
    """A row. `key` identifies it while its cells change."""

    key: str
    cells: tuple[Text, ...]


_DAYS: Final = re.compile(r"(\d+) d (\d+) h")
_TIME: Final = re.compile(r"(?:(\d+):)?(\d+):(\d\d)(?!\d)")
_NUMBER: Final = re.compile(r"-?[\d,]*\.?\d+")
_NO_LIMIT: Final = "∞"


def cell_rank(cell: Text) -> tuple[int, float, str]:
    """Return what a cell is compared by."""
    text = cell.plain.strip()
    if text == _NO_LIMIT:
        return 0, math.inf, ""
    if found := _DAYS.match(text):
        return 0, int(found[1]) * 86400.0 + int(found[2]) * 3600.0, text
    if found := _TIME.match(text):
        return 0, int(found[1] or 0) * 3600.0 + int(found[2]) * 60.0 + int(found[3]), text
    if found := _NUMBER.match(text):
        return 0, float(found[0].replace(",", "")), text.casefold()
    return 1, 0.0, text.casefold()


# -- the widget ---------------------------------------------------------------------------------------

CHOSEN = Style(reverse=True)


class LiveTable(Widget, can_focus=True):
    """The widget: a title, column names and rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "turn(-1)", "page up", show=False),
        Binding("pagedown,space", "turn(1)", "page down", show=False),
        Binding("home,g", "jump(0)", "first", show=False),
        Binding("end,G", "jump(-1)", "last", show=False),
        Binding("enter", "choose", "open", show=False),
        Binding("t", "sort('next')", "sort"),
        Binding("T", "sort('reverse')", "other way", show=False),
    ]

    class Chosen(Message):
        """Sent on Enter or a double click on a row."""

        def __init__(self, table: "LiveTable", key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Moved(Message):
        """Sent when another row was chosen, or the table got the focus."""

    class Beyond(Message):
        """Sent when the cursor should move past the first (-1) or the last (1) row."""

        def __init__(self, table: "LiveTable", direction: int) -> None:
            super().__init__()
            self.table = table
            self.direction = direction

    def __init__(self, name: str, columns: Sequence[Column], *, follows: bool = False) -> None:
        """Create a table. With `follows` the last row stays chosen until the cursor is moved away from it."""
        super().__init__(id=name)
        self._columns = tuple(columns)
        self._head_lines = 2 if any(column.title for column in columns) else 1
        self._follows = follows
        self._rows: list[Row] = []
        self._unsorted: list[Row] = []
        self._sorted_by: int | None = None
        self._is_reversed = False
        self._at = 0
        self._top = 0
        self._is_pinned = False
        self._title = name
        self._empty = ""

    # -- content ---------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows

    @property
    def chosen(self) -> str | None:
        """Return the key of the row under the cursor."""
        return self._rows[self._at].key if self._rows else None

    def fill(self, rows: Sequence[Row], *, title: str, empty: str) -> None:
        """Show these rows, or the text `empty` if there are none.

        Once the cursor was moved, the chosen row keeps its line of the screen, wherever it is in the list.
        """
        key = self.chosen
        self._unsorted = list(rows)
        self._rows = self._in_order()
        self._title, self._empty = one_line(f"{self.id} {title}"), empty
        if self._is_pinned:
            place = next((place for place, row in enumerate(self._rows) if row.key == key), self._at)
            self._at, self._top = place, self._top + place - self._at
        else:
            self._at = len(self._rows) - 1 if self._follows else 0
        self._scroll_to_cursor()

    def go_to(self, place: int) -> None:
        """Choose the row at this position; -1 is the last."""
        last = len(self._rows) - 1
        self._at = max(0, min(place, last)) if place >= 0 else last
        self._is_pinned = self._at != (last if self._follows else 0)
        self._scroll_to_cursor()
        self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        self._at = max(0, min(self._at, len(self._rows) - 1))
        self._top = max(0, min(self._top, self._at, len(self._rows) - self._room))
        self._top = max(self._top, self._at - self._room + 1)
        self.refresh()

    def action_sort(self, by: str) -> None:
        """Sort by the next column, or the other way round."""
        if self._head_lines == 1:  # without titles nobody could see by what
            return
        if by == "reverse":
            self._is_reversed = not self._is_reversed
        else:  # after the last column none: the rows are left as they come
            following = 0 if self._sorted_by is None else self._sorted_by + 1
            self._sorted_by = following if following < len(self._columns) else None
            self._is_reversed = False
        self._rows = self._in_order()
        self.go_to(0)

    def _in_order(self) -> list[Row]:
        """Return the rows as they are sorted. Those whose cell is empty come last in both directions."""
        place = self._sorted_by
        if place is None:
            return self._unsorted
        full = [row for row in self._unsorted if row.cells[place].plain.strip()]
        empty = [row for row in self._unsorted if not row.cells[place].plain.strip()]
        return sorted(full, key=lambda row: cell_rank(row.cells[place]), reverse=self._is_reversed) + empty

    @property
    def _room(self) -> int:
        return max(1, self.size.height - self._head_lines)

    # -- cursor ----------------------------------------------------------------------------------

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
        self._scroll_to_cursor()

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
        seen = self._rows[self._top : self._top + self._room]
        columns = list(self._columns)
        if (by := self._sorted_by) is not None:
            mark = "▼" if self._is_reversed else "▲"
            columns[by] = msgspec.structs.replace(columns[by], title=f"{columns[by].title}{mark}")
        widths = fit_columns(columns, [row.cells for row in seen], self.size.width)
        if y < self._head_lines:
            titles = [Text(column.title, style="dim") for column in columns]
            return self._strip(line_of(titles, columns, widths))
        place = self._top + y - self._head_lines
        if place >= len(self._rows):
            return self._strip(Text(""))
        is_chosen = place == self._at and self.has_focus
        return self._strip(line_of(self._rows[place].cells, columns, widths), is_chosen=is_chosen)

    def _title_strip(self) -> Strip:
        title = Text(f" {self._title} ", style="bold reverse" if self.has_focus else "bold")
        rule = Text("─" * max(0, self.size.width - title.cell_len), style="dim")
        return self._strip(Text.assemble(title, rule))

    def _strip(self, text: Text, *, is_chosen: bool = False) -> Strip:
        if is_chosen:  # in one colour: reversed colours are hard to read
            return Strip([Segment(text.plain, CHOSEN)]).adjust_cell_length(self.size.width, CHOSEN)
        style = self.rich_style
        segments = text.render(self.app.console, end="")
        strip = Strip([Segment(each.text, style + each.style if each.style else style) for each in segments])
        return strip.adjust_cell_length(self.size.width, style)
