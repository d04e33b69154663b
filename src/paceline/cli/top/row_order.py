"""The order of rows by one of their columns, as people read the cells: numbers and times by size, text by letters."""

import math
import re
from typing import Final

import msgspec
from rich.text import Text

from paceline.cli.top.column_layout import Column
from paceline.cli.top.table_row import Row

_DAYS: Final = re.compile(r"(\d+) d (\d+) h")
_TIME: Final = re.compile(r"(?:(\d+):)?(\d+):(\d\d)(?!\d)")
_NUMBER: Final = re.compile(r"-?[\d,]*\.?\d+")
_NO_LIMIT: Final = "∞"


class RowOrder(msgspec.Struct, frozen=True, kw_only=True):
    """By which column the rows of a table are sorted; None leaves them as they come."""

    columns: tuple[Column, ...]
    by: int | None = None
    is_reversed: bool = False

    def after_next(self) -> "RowOrder":
        """Return the order by the next column; after the last one, none."""
        following = 0 if self.by is None else self.by + 1
        return RowOrder(columns=self.columns, by=following if following < len(self.columns) else None)

    def reverse(self) -> "RowOrder":
        return msgspec.structs.replace(self, is_reversed=not self.is_reversed)

    def sort(self, rows: list[Row]) -> list[Row]:
        """Return the rows in this order. Rows whose cell is empty come last in both directions."""
        place = self.by
        if place is None:
            return rows
        full = [row for row in rows if row.cells[place].plain.strip()]
        empty = [row for row in rows if not row.cells[place].plain.strip()]
        return sorted(full, key=lambda row: cell_rank(row.cells[place]), reverse=self.is_reversed) + empty

    @property
    def marked_columns(self) -> tuple[Column, ...]:
        """The columns, with a mark in the title of the one that the rows are sorted by."""
        if self.by is None:
            return self.columns
        column = self.columns[self.by]
        marked = msgspec.structs.replace(column, title=f"{column.title}{'▼' if self.is_reversed else '▲'}")
        return (*self.columns[: self.by], marked, *self.columns[self.by + 1 :])


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
