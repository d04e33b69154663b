"""Templates: texts with `{column}` in them. `{{column}}` means literal braces; other braces are plain text."""

import re
from collections.abc import Collection, Mapping

import msgspec

_BRACES = re.compile(r"\{\{([^{}\n]+)\}\}|\{([^{}\n]+)\}")
_NAME = re.compile(r"[^\W\d][\w.-]*(?: [\w.-]+)*")
_SHELL_VARIABLE = re.compile(r"\$\{\w+\}|\{\{\w+\}\}")
_WORD = re.compile(r"\{(\w+)\}")


class Template:
    """A text that is split at its columns once, so that filling it a hundred thousand times is cheap."""

    __slots__ = ("_columns", "_texts", "text", "unknown")

    def __init__(self, text: str, columns: Collection[str]) -> None:
        self.text = text
        self.unknown: list[str] = []
        """Names in braces that are not columns: mistakes. Braces around other text are left alone."""
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
        """Return the text with the values of the row. Raise `KeyError` with a column that the row lacks."""
        pieces = [self._texts[0]]
        for column, text in zip(self._columns, self._texts[1:], strict=True):
            pieces.append(as_text(row[column]))
            pieces.append(text)
        return "".join(pieces)


def as_text(value: object) -> str:
    """Return text unchanged, nothing for null, and JSON for other values."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def command_placeholders(argument: str) -> list[str]:
    """Return the names in braces of an argument. `${NAME}` and `{{name}}` belong to the shell or the program."""
    return _WORD.findall(_SHELL_VARIABLE.sub("", argument))
