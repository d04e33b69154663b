"""A row of a table of `top`."""

import msgspec
from rich.text import Text


class Row(msgspec.Struct, frozen=True):
    """A row. `key` identifies it while its cells change."""

    key: str
    cells: tuple[Text, ...]
