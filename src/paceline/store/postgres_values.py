"""Values on their way to PostgreSQL and back: text of any characters, and columns of many rows.

A verb over many units is one statement over arrays. `psycopg` would write an array item by item as text, which costs
the engine more than the server takes for the whole statement. These arrays are packed in PostgreSQL's binary format.
"""

import struct
from abc import abstractmethod
from itertools import chain, repeat
from typing import Any, ClassVar, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

_ESCAPE: Final = "\ue000"
"""Stands before a letter for a character that PostgreSQL cannot store, or that means something here."""
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_HEAD: Final = ">iiIii"
"""Of an array: the number of its dimensions, whether it has nulls, the type of its items, their count, and its first
index."""


class TextArray(list[str | None]):
    """A column of text."""


class BigintArray(list[int | None]):
    """A column of whole numbers."""


class FloatArray(list[float | None]):
    """A column of numbers."""


class BooleanArray(list[bool | None]):
    """A column of truth values."""


def register_values(adapters: AdaptersMap) -> None:
    """Let a connection use the values of this module."""
    adapters.register_dumper(str, _TextDumper)
    adapters.register_loader("text", _TextLoader)
    adapters.register_dumper(TextArray, _TextArrayDumper)
    for array, name, code in ((BigintArray, "int8", "q"), (FloatArray, "float8", "d"), (BooleanArray, "bool", "?")):
        adapters.register_dumper(array, _number_array(name, code))


# -- text --------------------------------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    if "\x00" in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, f"{_ESCAPE}e").replace("\x00", f"{_ESCAPE}0")
    return text.encode()


class _TextDumper(Dumper):
    """Text of any Unicode characters. PostgreSQL refuses NUL, so it is stored as two others."""

    oid = psycopg.adapters.types["text"].oid

    def dump(self, obj: str) -> bytes:
        return _encoded(obj)


class _TextLoader(Loader):
    """The text as it was before it was stored."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return text.replace(f"{_ESCAPE}0", "\x00").replace(f"{_ESCAPE}e", _ESCAPE) if _ESCAPE in text else text


# -- arrays ------------------------------------------------------------------------------------------


class _ArrayDumper(Dumper):
    format = Format.BINARY
    item_oid: ClassVar[int]

    def dump(self, obj: list[Any]) -> bytes:
        head = struct.pack(_HEAD, 1, None in obj, self.item_oid, len(obj), 1)
        if obj and obj.count(obj[0]) == len(obj):  # as most columns of many outcomes are
            return head + self.packed(obj[:1]) * len(obj)
        return head + self.packed(obj)

    @abstractmethod
    def packed(self, items: list[Any]) -> bytes:
        """Return the items, each after its length."""


class _TextArrayDumper(_ArrayDumper):
    oid = psycopg.adapters.types["text"].array_oid
    item_oid = psycopg.adapters.types["text"].oid

    def packed(self, items: list[str | None]) -> bytes:
        parts: list[bytes] = []
        for text in items:
            if text is None:
                parts.append(_NULL)
            else:
                encoded = _encoded(text)
                parts += (_LENGTH.pack(len(encoded)), encoded)
        return b"".join(parts)


class _NumberArrayDumper(_ArrayDumper):
    code: ClassVar[str]
    """That of an item for `struct`."""

    def packed(self, items: list[Any]) -> bytes:
        size = struct.calcsize(f">{self.code}")
        if None in items:
            pack = struct.Struct(f">i{self.code}").pack
            return b"".join(_NULL if each is None else pack(size, each) for each in items)
        values = chain.from_iterable(zip(repeat(size), items, strict=False))
        return struct.pack(f">{f'i{self.code}' * len(items)}", *values)


def _number_array(name: str, code: str) -> type[_NumberArrayDumper]:
    """Return the dumper of arrays of a type of numbers."""
    known = psycopg.adapters.types[name]
    return type(f"{name}_dumper", (_NumberArrayDumper,), {"oid": known.array_oid, "item_oid": known.oid, "code": code})
