"""Texts with `{column}` in them. `{{column}}` stands for the braces themselves; other braces are plain text."""

import re
from collections.abc import Collection, Mapping

import msgspec

_BRACES = re.compile(r"\{\{([^{}\n]+)\}\}|\{([^{}\n]+)\}")
_NAME = re.compile(r"[^\W\d][\w.-]*(?: [\w.-]+)*")
_SHELL_VARIABLE = re.compile(r"\$\{\w+\}|\{\{\w+\}\}")
_WORD = re.compile(r"\{(\w+)\}")


class Template:
    """A text cut at its columns once, so that filling it in a hundred thousand times is cheap."""

    __slots__ = ("_columns", "_texts", "text", "unknown")

    def __init__(self, text: str, columns: Collection[str]) -> None:
        self.text = text
        self.unknown: list[str] = []
        """Names in braces that are no columns: mistakes. Braces around what cannot be a name are left alone."""
        self._texts = [""]
        self._columns: list[str] = []
        position = 0
        for found in _BRACES.finditer(text):
            self._texts[-1] += text[position : found.start()]
            position = found.end()
            self._take(found, columns)
        self._texts[-1] += text[position:]

    def _take(self, found: re.Match[str], columns: Collection[str]) -> None:
        doubled, name = found.groups()
        if doubled is not None:
            self._texts[-1] += "{" + doubled + "}"
        elif name in columns:
            self._columns.append(name)
            self._texts.append("")
        else:
            self._texts[-1] += found[0]
            if _NAME.fullmatch(name):
                self.unknown.append(name)

    def fill(self, row: Mapping[str, object]) -> str:
        """With the values of the row put in; `KeyError` names a column that it lacks."""
        pieces = [self._texts[0]]
        for column, text in zip(self._columns, self._texts[1:], strict=True):
            pieces.append(as_text(row[column]))
            pieces.append(text)
        return "".join(pieces)


def as_text(value: object) -> str:
    """Text as it is, nothing for null, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def command_placeholders(argument: str) -> list[str]:
    """The names in braces of a command's argument; `${NAME}` and `{{name}}` are the shell's or the program's own."""
    return _WORD.findall(_SHELL_VARIABLE.sub("", argument))
