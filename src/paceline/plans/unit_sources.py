"""Sources of units besides [[unit]]: files by a glob, rows of CSV or JSONL, sections of a Markdown file.

Each source becomes rows: a location and named columns. `id`, `prompt`, `cwd` and `output` of [units] are templates
over the columns. Never here: what makes a unit valid.
"""

import csv
import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from paceline.config_files import checks
from paceline.config_files.documents import (
    Check,
    Document,
    KeyPlace,
    Mistakes,
    Place,
    checked_fields,
    did_you_mean,
    read_text,
    refuse_value,
)
from paceline.plans.templates import Template
from paceline.plans.unit_rules import LARGEST_PROMPT_BYTES, UnitList

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

    rows: list[tuple[Place, Row]]
    columns: set[str]
    defaults: dict[str, str]


class Source:
    """The [units] table that is being read."""

    def __init__(self, document: Document, folder: Path, mistakes: Mistakes) -> None:
        self.document = document
        self.folder = folder
        self.mistakes = mistakes
        self.mistakes_before = len(mistakes)

    def place(self, key: str) -> KeyPlace:
        return KeyPlace(self.document, (UNITS, key))

    def text_of(self, path: Path, key: str) -> str | None:
        return read_text(path, self.mistakes, self.place(key))


def add_units(
    document: Document, table: Mapping[str, object], folder: Path, units: UnitList, mistakes: Mistakes
) -> None:
    """Add every unit that [units] describes."""
    fields = {key: str(value) for key, value in checked_fields(document, (UNITS,), table, FIELDS, mistakes).items()}
    named = [key for key in SOURCES if key in table]
    if len(named) != 1:
        mistakes.add(
            KeyPlace(document, (UNITS,)), f"[units] needs exactly one of {', '.join(SOURCES)}; it has {len(named)}"
        )
        return
    key = named[0]
    if key not in fields:
        return
    source = Source(document, folder, mistakes)
    rows = _READERS[key](source, fields[key])
    if rows is None:
        return
    if key == "glob":
        units.sources.update(os.path.normpath(os.path.join(folder, str(row["path"]))) for _, row in rows.rows)
    templates = _templates(source, fields, rows)
    if templates is not None:
        _add_rows(rows, templates, units, mistakes)


def _templates(source: Source, fields: Mapping[str, str], rows: Rows) -> dict[str, Template] | None:
    texts = {**rows.defaults, **{key: fields[key] for key in TEMPLATES if key in fields}}
    if "prompt" not in texts:
        needed = f'needs prompt = "... {{column}} ..."; the columns are {_listed(rows.columns)}'
        source.mistakes.add(KeyPlace(source.document, (UNITS,)), f"[units] {needed}")
        return None
    templates = {}
    for key, text in texts.items():
        columns = rows.columns if key == "id" else rows.columns | {"id"}
        templates[key] = Template(text, columns)
        for name in templates[key].unknown:
            hint = did_you_mean(name, columns) or f"; there are {_listed(columns)}"
            wanted = f"there is no column {name!r}{hint} (write {{{{{name}}}}} for the braces themselves)"
            refuse_value(source.document, (UNITS, key), text, wanted, source.mistakes)
    return None if any(template.unknown for template in templates.values()) else templates


def _listed(columns: set[str]) -> str:
    return ", ".join(sorted(columns)[:20]) or "none"


def _add_rows(rows: Rows, templates: Mapping[str, Template], units: UnitList, mistakes: Mistakes) -> None:
    name_of, prompt_of = templates["id"], templates["prompt"]
    cwd_of, output_of = templates.get("cwd"), templates.get("output")
    for place, row in rows.rows:
        try:
            name = name_of.fill(row)
            whole = {**row, "id": name}
            units.add(
                place,
                name,
                prompt_of.fill(whole),
                cwd_of.fill(whole) if cwd_of else None,
                output_of.fill(whole) if output_of else None,
            )
        except KeyError as missing:
            mistakes.add(place, f"this row has no column {missing}")


# -- files -----------------------------------------------------------------------------------


def _read_glob(source: Source, pattern: str) -> Rows | None:
    names = sorted(glob.glob(pattern, root_dir=source.folder, recursive=True))
    names = [name for name in names if os.path.isfile(source.folder / name)]
    if not names:
        refuse_value(source.document, (UNITS, "glob"), pattern, f"no file in {source.folder} matches", source.mistakes)
        return None
    base = _fixed_folder(pattern)
    own_folders = [os.path.realpath(folder) for folder in (source.folder, source.folder / base)]
    rows: list[tuple[Place, Row]] = []
    for name in names:
        path = source.folder / name
        if not _is_inside_one(os.path.realpath(path), own_folders):
            message = "is a link out of the plan's folder, and glob follows none; copy the file, or name its own folder"
            source.mistakes.add(path, message)
        elif _size_of(path) > LARGEST_PROMPT_BYTES:
            source.mistakes.add(path, f"too large for a prompt: more than {LARGEST_PROMPT_BYTES:,} bytes")
        elif (text := read_text(path, source.mistakes)) is not None:
            inner = os.path.splitext(os.path.relpath(name, base))[0].replace("/", ".")
            columns = {"name": inner, "file": path.name, "path": name, "text": text}
            rows.append((Place(str(path)), columns))
    return Rows(rows, {"name", "file", "path", "text"}, {"id": "{name}", "prompt": "{text}"})


def _is_inside_one(path: str, folders: list[str]) -> bool:
    return any(os.path.commonpath((path, folder)) == folder for folder in folders)


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


def _read_jsonl(source: Source, name: str) -> Rows | None:
    path = source.folder / name
    text = source.text_of(path, "jsonl")
    if text is None:
        return None
    file = str(path)
    rows: list[tuple[Place, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.isspace():
            continue
        try:
            rows.append((Place(file, number), _ROW.decode(line)))
        except (ValueError, RecursionError) as error:
            source.mistakes.add(Place(file, number), f"each line must be one JSON object: {error}")
    return _table(source, path, rows, set().union(*(row for _, row in rows)))


def _read_csv(source: Source, name: str) -> Rows | None:
    path = source.folder / name
    text = source.text_of(path, "csv")
    if text is None:
        return None
    limit = csv.field_size_limit(LARGEST_PROMPT_BYTES)  # a setting of the whole process, so it is restored
    try:
        lines = list(_csv_lines(text))
    except csv.Error as error:
        source.mistakes.add(path, f"not CSV: {error}")
        return None
    finally:
        csv.field_size_limit(limit)
    header = lines[0][1] if lines else []
    if len(set(header)) < len(header) or "" in header:
        source.mistakes.add(Place(str(path), lines[0][0]), "each column needs a name of its own in the first line")
        return None
    rows: list[tuple[Place, Row]] = []
    for number, cells in lines[1:]:
        place = Place(str(path), number)
        if len(cells) == len(header):
            rows.append((place, dict(zip(header, cells, strict=True))))
        else:
            source.mistakes.add(place, f"this row has {len(cells)} cells, the first line names {len(header)} columns")
    return _table(source, path, rows, set(header))


def _csv_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each row and its cells. Empty lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    for cells in reader:
        if cells:
            yield begin, cells
        begin = reader.line_num + 1


def _table(source: Source, path: Path, rows: list[tuple[Place, Row]], columns: set[str]) -> Rows | None:
    if not rows:
        if len(source.mistakes) == source.mistakes_before:
            source.mistakes.add(path, "the file has no rows")
        return None
    if "id" not in columns:
        rows = [(place, {**row, "id": f"{path.stem}-{number}"}) for number, (place, row) in enumerate(rows, 1)]
    defaults = {"id": "{id}"}
    if "prompt" in columns:
        defaults["prompt"] = "{prompt}"
    return Rows(rows, columns | {"id"}, defaults)


# -- sections --------------------------------------------------------------------------------


def _read_sections(source: Source, name: str) -> Rows | None:
    path = source.folder / name
    text = source.text_of(path, "sections")
    if text is None:
        return None
    intro, sections = split_sections(text)
    if not sections:
        refuse_value(source.document, (UNITS, "sections"), name, "the file has no ## heading", source.mistakes)
        return None
    rows: list[tuple[Place, Row]] = []
    for number, (line, title, body) in enumerate(sections, 1):
        slug = _NOT_IN_SLUG.sub("-", title.lower()).strip("-_") or f"section-{number}"
        whole = f"{title}\n\n{body}".strip()
        columns = {"name": slug, "title": title, "body": body, "text": whole, "intro": intro}
        rows.append((Place(str(path), line), columns))
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


_READERS: Mapping[str, Callable[[Source, str], Rows | None]] = {
    "glob": _read_glob,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "sections": _read_sections,
}
