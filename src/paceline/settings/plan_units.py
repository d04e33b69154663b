"""Sources of units besides [[unit]]: files by a glob, rows of CSV or JSONL, sections of a Markdown file.

Each source becomes rows: a location and named columns. `id`, `prompt`, `cwd` and `output` of [units] are templates
over the columns. Never here: what makes a unit valid.
"""

import csv
import glob
import io
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from paceline.agents.launch import unsafe_message, unsafe_placeholders
from paceline.settings import checks
from paceline.settings.checks import Check, Document, Location, Mistakes, cut, did_you_mean, read_text, shown
from paceline.store.interface import UnitSpec
from paceline.store.rules import is_unicode

# -- templates -------------------------------------------------------------------------------------

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


# -- rules for units -------------------------------------------------------------------------------

LARGEST_PROMPT_BYTES = 1024 * 1024
"""Agents read at most a few hundred thousand tokens; a longer text is a file that was named by mistake."""
_LONGEST_ID_BYTES = 200
"""An id names files. File systems allow 255 bytes, which leaves room for a suffix."""
_SAFE_ID = re.compile(r"[^\x00-\x20\x7f./\\-](?:[^\x00-\x1f\x7f/\\]*[^\x00-\x20\x7f/\\])?")


class PromptRules(msgspec.Struct, frozen=True):
    """The rules for prompts of an agent."""

    is_needed: bool = True
    most_bytes: int = LARGEST_PROMPT_BYTES
    why_most: str = "a prompt is at most 1 MiB; put the rest into a file and name it in the prompt"
    command: tuple[str, ...] = ()
    """The plan's own command, whose placeholders the values of each unit replace."""
    is_for_here: bool = True
    """Whether units may run on this machine, so that their folders must be there."""
    has_own_tree: bool = False
    """Whether each unit works in a tree of its own, in which its output is nobody else's."""


class UnitList:
    """The valid units so far. Relative paths begin in the folder of the plan and become absolute."""

    def __init__(self, folder: Path, rules: PromptRules, mistakes: Mistakes) -> None:
        self.units: list[UnitSpec] = []
        self.sources: set[str] = set()
        """Files that prompts were read from. No unit may overwrite one."""
        self._folder = os.path.abspath(folder)
        self._rules = rules
        self._mistakes = mistakes
        self._location_of_id: dict[str, object] = {}
        self._location_of_output: dict[str, object] = {}
        self._is_folder: dict[str, bool] = {}

    def add(self, location: object, name: str, prompt: str, cwd: str | None = None, output: str | None = None) -> None:
        """Check a unit. Keep it if it is valid, else add its mistakes."""
        before = len(self._mistakes)
        self._check_id(location, name)
        self._check_prompt(location, name, prompt)
        values = {"id": name, "prompt": prompt}
        for unsafe in unsafe_placeholders(self._rules.command, values):
            self._refuse(location, name, unsafe_message(unsafe, values[unsafe]))
        folder = self._folder if cwd is None else self._checked_folder(location, name, cwd)
        file = None if output is None else self._checked_output(location, name, output, folder)
        if len(self._mistakes) == before:
            self.units.append(UnitSpec(id=name, prompt=prompt, cwd=folder, output=file))

    def _refuse(self, location: object, name: str, message: str) -> None:
        self._mistakes.add(location, f"unit {shown(name)}: {message}")

    def _check_id(self, location: object, name: str) -> None:
        if not is_safe_name(name):
            self._refuse(location, name, f"this id cannot be used: {SAFE_NAME}")
        first = self._location_of_id.setdefault(name, location)
        if first is not location:
            self._refuse(location, name, f"this id is already used at {first}; give each unit an id of its own")

    def _check_prompt(self, location: object, name: str, prompt: str) -> None:
        if "\0" in prompt:
            line = prompt.count("\n", 0, prompt.index("\0")) + 1
            self._refuse(location, name, f"the prompt has a NUL character in its line {line}; remove it")
        if self._rules.is_needed and not prompt.strip():
            self._refuse(location, name, "the prompt is empty or missing")
        if len(prompt) * 4 > self._rules.most_bytes:  # no character has more than four bytes
            size = len(prompt.encode(errors="replace"))
            if size > self._rules.most_bytes:
                self._refuse(location, name, f"the prompt has {size:,} bytes; {self._rules.why_most}")

    def _checked_folder(self, location: object, name: str, cwd: str) -> str:
        path = self._absolute(cwd)
        if path is None or not cwd:
            self._refuse(location, name, f"cwd {shown(cwd)} cannot be a folder")
            return self._folder
        if path not in self._is_folder:
            self._is_folder[path] = not self._rules.is_for_here or os.path.isdir(path)
        if not self._is_folder[path]:
            self._refuse(location, name, f"cwd {shown(cwd)}: there is no folder {cut(path)}")
        return path

    def _checked_output(self, location: object, name: str, output: str, folder: str) -> str | None:
        path = self._absolute(output)
        if path is None or not output or output.endswith("/"):
            self._refuse(location, name, f"output {shown(output)} cannot be a file")
            return None
        if not (_is_inside(path, self._folder) or _is_inside(path, folder)):
            self._refuse(location, name, f"output {shown(output)} must lie in the plan's folder or in the unit's cwd")
        if self._rules.has_own_tree:
            return path
        if path in self.sources:
            self._refuse(location, name, f"output {shown(output)} would overwrite the file a prompt comes from")
        first = self._location_of_output.setdefault(path, location)
        if first is not location:
            self._refuse(location, name, f"output {shown(output)} is already the output of the unit at {first}")
        return path

    def _absolute(self, path: str) -> str | None:
        if "\0" in path or not is_unicode(path):
            return None
        return os.path.normpath(os.path.join(self._folder, path))


SAFE_NAME = "it must be 1 to 200 bytes without / \\ or control characters, and not begin with . or - or end in a space"


def is_safe_name(name: str) -> bool:
    """Return whether the name can be a file name and an argument of a command."""
    return _SAFE_ID.fullmatch(name) is not None and is_unicode(name) and len(name.encode()) <= _LONGEST_ID_BYTES


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith("/") else folder + "/")


# -- sources of units --------

UNITS = "units"
SOURCES = ("glob", "csv", "jsonl", "sections")
TEMPLATES = ("id", "prompt", "cwd", "output")
FIELDS: Mapping[str, Check] = dict.fromkeys((*SOURCES, *TEMPLATES), checks.text)
_ROW = msgspec.json.Decoder(dict[str, object])
_HEADING = re.compile(r"(#{1,2})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NOT_IN_SLUG = re.compile(r"\W+")

Row = Mapping[str, object]


class Rows(msgspec.Struct):
    """The rows of a source. `defaults` are the templates that [units] does not set."""

    rows: list[tuple[Location, Row]]
    columns: set[str]
    defaults: dict[str, str]


def add_units(document: Document, table: Mapping[str, object], folder: Path, units: UnitList) -> None:
    """Add every unit that [units] describes."""
    fields = {key: str(value) for key, value in document.fields((UNITS,), table, FIELDS).items()}
    named = [key for key in SOURCES if key in table]
    if len(named) != 1:
        document.refuse((UNITS,), f"[units] needs exactly one of {', '.join(SOURCES)}; it has {len(named)}")
        return
    key = named[0]
    if key not in fields:
        return
    rows = _READERS[key](document, folder, fields[key])
    if rows is None:
        return
    if key == "glob":
        units.sources.update(os.path.normpath(os.path.join(folder, str(row["path"]))) for _, row in rows.rows)
    templates = _templates(document, fields, rows)
    if templates is not None:
        _add_rows(rows, templates, units, document.mistakes)


def _templates(document: Document, fields: Mapping[str, str], rows: Rows) -> dict[str, Template] | None:
    texts = {**rows.defaults, **{key: fields[key] for key in TEMPLATES if key in fields}}
    if "prompt" not in texts:
        needed = f'needs prompt = "... {{column}} ..."; the columns are {_listed(rows.columns)}'
        document.refuse((UNITS,), f"[units] {needed}")
        return None
    templates = {}
    for key, text in texts.items():
        columns = rows.columns if key == "id" else rows.columns | {"id"}
        templates[key] = Template(text, columns)
        for name in templates[key].unknown:
            hint = did_you_mean(name, columns) or f"; there are {_listed(columns)}"
            wanted = f"there is no column {name!r}{hint} (write {{{{{name}}}}} for the braces themselves)"
            document.refuse_value((UNITS, key), text, wanted)
    return None if any(template.unknown for template in templates.values()) else templates


def _listed(columns: set[str]) -> str:
    return ", ".join(sorted(columns)[:20]) or "none"


def _add_rows(rows: Rows, templates: Mapping[str, Template], units: UnitList, mistakes: Mistakes) -> None:
    name_of, prompt_of = templates["id"], templates["prompt"]
    cwd_of, output_of = templates.get("cwd"), templates.get("output")
    for location, row in rows.rows:
        try:
            name = name_of.fill(row)
            whole = {**row, "id": name}
            units.add(
                location,
                name,
                prompt_of.fill(whole),
                cwd_of.fill(whole) if cwd_of else None,
                output_of.fill(whole) if output_of else None,
            )
        except KeyError as missing:
            mistakes.add(location, f"this row has no column {missing}")


# -- files -----------------------------------------------------------------------------------


def _read_glob(document: Document, folder: Path, pattern: str) -> Rows | None:
    names = sorted(glob.glob(pattern, root_dir=folder, recursive=True))
    names = [name for name in names if os.path.isfile(folder / name)]
    if not names:
        document.refuse_value((UNITS, "glob"), pattern, f"no file in {folder} matches")
        return None
    base = _fixed_folder(pattern)
    own_folders = [os.path.realpath(each) for each in (folder, folder / base)]
    rows: list[tuple[Location, Row]] = []
    for name in names:
        path, target = folder / name, os.path.realpath(folder / name)
        if not any(os.path.commonpath((target, own)) == own for own in own_folders):
            message = "is a link out of the plan's folder, and glob follows none; copy the file, or name its own folder"
            document.mistakes.add(path, message)
        elif _size_of(path) > LARGEST_PROMPT_BYTES:
            document.mistakes.add(path, f"too large for a prompt: more than {LARGEST_PROMPT_BYTES:,} bytes")
        elif (text := read_text(path, document.mistakes)) is not None:
            inner = os.path.splitext(os.path.relpath(name, base))[0].replace("/", ".")
            columns = {"name": inner, "file": path.name, "path": name, "text": text}
            rows.append((Location(str(path)), columns))
    return Rows(rows, {"name", "file", "path", "text"}, {"id": "{name}", "prompt": "{text}"})


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading the file reports what is wrong
        return 0


def _fixed_folder(pattern: str) -> str:
    """Return the part of a glob before its first wildcard: `tasks` of `tasks/**/*.md`."""
    parts = pattern.split("/")[:-1]
    fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")


# -- rows ------------------------------------------------------------------------------------


def _read_jsonl(document: Document, folder: Path, name: str) -> Rows | None:
    path, before = folder / name, len(document.mistakes)
    text = read_text(path, document.mistakes, document.at((UNITS, "jsonl")))
    if text is None:
        return None
    file = str(path)
    rows: list[tuple[Location, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.isspace():
            continue
        try:
            rows.append((Location(file, number), _ROW.decode(line)))
        except (ValueError, RecursionError) as error:
            document.mistakes.add(Location(file, number), f"each line must be one JSON object: {error}")
    return _table(document, before, path, rows, set().union(*(row for _, row in rows)))


def _read_csv(document: Document, folder: Path, name: str) -> Rows | None:
    path, before = folder / name, len(document.mistakes)
    text = read_text(path, document.mistakes, document.at((UNITS, "csv")))
    if text is None:
        return None
    limit = csv.field_size_limit(LARGEST_PROMPT_BYTES)  # a setting of the whole process, so it is restored
    try:
        lines = list(_csv_lines(text))
    except csv.Error as error:
        document.mistakes.add(path, f"not CSV: {error}")
        return None
    finally:
        csv.field_size_limit(limit)
    header = lines[0][1] if lines else []
    if len(set(header)) < len(header) or "" in header:
        document.mistakes.add(Location(str(path), lines[0][0]), "each column needs a name of its own in the first line")
        return None
    rows: list[tuple[Location, Row]] = []
    for number, cells in lines[1:]:
        location = Location(str(path), number)
        if len(cells) == len(header):
            rows.append((location, dict(zip(header, cells, strict=True))))
        else:
            document.mistakes.add(
                location, f"this row has {len(cells)} cells, the first line names {len(header)} columns"
            )
    return _table(document, before, path, rows, set(header))


def _csv_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each row and its cells. Empty lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    for cells in reader:
        if cells:
            yield begin, cells
        begin = reader.line_num + 1


def _table(
    document: Document, before: int, path: Path, rows: list[tuple[Location, Row]], columns: set[str]
) -> Rows | None:
    """Return the rows. Add a mistake if there are none, unless the file had others: there were `before` of it."""
    if not rows:
        if len(document.mistakes) == before:
            document.mistakes.add(path, "the file has no rows")
        return None
    if "id" not in columns:
        rows = [(location, {**row, "id": f"{path.stem}-{number}"}) for number, (location, row) in enumerate(rows, 1)]
    defaults = {"id": "{id}"}
    if "prompt" in columns:
        defaults["prompt"] = "{prompt}"
    return Rows(rows, columns | {"id"}, defaults)


# -- sections --------------------------------------------------------------------------------


def _read_sections(document: Document, folder: Path, name: str) -> Rows | None:
    path = folder / name
    text = read_text(path, document.mistakes, document.at((UNITS, "sections")))
    if text is None:
        return None
    intro, sections = split_sections(text)
    if not sections:
        document.refuse_value((UNITS, "sections"), name, "the file has no ## heading")
        return None
    rows: list[tuple[Location, Row]] = []
    for number, (line, title, body) in enumerate(sections, 1):
        slug = _NOT_IN_SLUG.sub("-", title.lower()).strip("-_") or f"section-{number}"
        whole = f"{title}\n\n{body}".strip()
        columns = {"name": slug, "title": title, "body": body, "text": whole, "intro": intro}
        rows.append((Location(str(path), line), columns))
    return Rows(rows, set(rows[0][1]), {"id": "{name}", "prompt": "{text}"})


def split_sections(text: str) -> tuple[str, list[tuple[int, str, str]]]:
    """Return the text before the first `##`, and each section: its line, title and body.

    A `#` heading also ends a section. `#` inside a fenced block is not a heading.
    """
    intro: list[str] = []
    sections: list[tuple[int, str, list[str]]] = []
    target: list[str] = intro
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):  # as editors count lines; splitlines splits at more characters
        line = line.removesuffix("\r")
        fence = _fence_after(fence, line)
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            target.append(line)
        elif heading[1] == "##":
            target = []
            sections.append((number, heading[2] or "", target))
        else:
            target = [] if sections else intro
    return "\n".join(intro).strip(), [(number, title, "\n".join(body).strip()) for number, title, body in sections]


def _fence_after(fence: str, line: str) -> str:
    """Return the fence that is open after this line; empty outside of one."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    is_end = found[1].startswith(fence) and not line[found.end() :].strip()
    return "" if is_end else fence


_READERS: Mapping[str, Callable[[Document, Path, str], Rows | None]] = {
    "glob": _read_glob,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "sections": _read_sections,
}
