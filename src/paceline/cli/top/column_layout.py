"""Columns of a table, fitted to a width."""

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.text import Text

GAP = 2


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column. Without room the highest `rank` is dropped first, 0 never. It may be cut to `least` cells."""

    title: str
    right: bool = False
    rank: int = 0
    least: int | None = None


class ColumnLayout(msgspec.Struct, frozen=True):
    """The columns that have room, by number, and the width of each."""

    columns: tuple[Column, ...]
    shown: tuple[int, ...]
    widths: tuple[int, ...]

    def line(self, cells: Sequence[Text]) -> Text:
        """Return the shown cells as one line, each cut or filled to its width."""
        line = Text(no_wrap=True)
        for position, (number, width) in enumerate(zip(self.shown, self.widths, strict=True)):
            cell = cells[number].copy()
            cell.truncate(width, overflow="ellipsis")
            blank = " " * (width - cell.cell_len)
            line.append(" " * GAP if position else "")
            parts = (Text(blank), cell) if self.columns[number].right else (cell, Text(blank))
            for part in parts:
                line.append_text(part)
        return line


def fit_columns(columns: tuple[Column, ...], rows: Sequence[Sequence[Text]], width: int) -> ColumnLayout:
    """Choose the columns that have room for the visible rows, and how wide each of them is."""
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
    widths = []
    for each in shown:
        more = min(natural[each] - least[each], spare)
        spare -= more
        widths.append(least[each] + more)
    return ColumnLayout(columns, tuple(shown), tuple(widths))


def _width(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[each] for each in shown) + GAP * max(0, len(shown) - 1)
