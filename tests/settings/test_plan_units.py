"""Units from files, rows and sections."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import InvalidPlan
from paceline.settings.plan_file import read_plan
from paceline.settings.plan_units import Template, command_placeholders, split_sections
from paceline.store.interface import UnitSpec

HEAD = '[campaign]\nname = "c"\nagent = "claude"\n[units]\n'

Units = Callable[..., tuple[UnitSpec, ...]]


@pytest.fixture
def units(tmp_path: Path) -> Units:
    """`units(lines of [units], **files)` with `__` in a file's name for its dot."""

    def read(table: str, **files: str | bytes) -> tuple[UnitSpec, ...]:
        for name, content in files.items():
            encoded = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name.replace("__", ".")).write_bytes(encoded)
        (tmp_path / "plan.toml").write_bytes((HEAD + table).encode())
        return read_plan(tmp_path / "plan.toml").units

    return read


@pytest.fixture
def mistakes(units: Units, tmp_path: Path) -> Callable[..., list[str]]:
    def read(table: str, **files: str | bytes) -> list[str]:
        with pytest.raises(InvalidPlan) as caught:
            units(table, **files)
        return [mistake.replace(f"{tmp_path}/", "") for mistake in caught.value.mistakes]

    return read


Mistakes = Callable[..., list[str]]


def prompts(found: tuple[UnitSpec, ...]) -> dict[str, str]:
    return {unit.id: unit.prompt for unit in found}


# -- glob ------------------------------------------------------------------------------------


def test_each_file_of_a_glob_is_a_unit(units: Units, tmp_path: Path) -> None:
    found = units('glob = "*.md"\noutput = "out/{id}.txt"', b__md="two", a__md="one", __c__md="hidden")

    assert prompts(found) == {"a": "one", "b": "two"}
    assert found[0].output == f"{tmp_path}/out/a.txt"


def test_a_glob_that_goes_down_names_units_by_their_path(units: Units, tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / "tasks" / folder).mkdir(parents=True)
        (tmp_path / "tasks" / folder / "do.md").write_text(folder)

    assert prompts(units('glob = "tasks/**/*.md"')) == {"x.do": "x", "y.do": "y"}
    assert (
        prompts(units('glob = "tasks/*/do.md"\nprompt = "Read {path} ({file})"'))["x.do"]
        == "Read tasks/x/do.md (do.md)"
    )


def test_a_glob_follows_no_link_out_of_the_plans_folder(units: Units, mistakes: Mistakes, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "own.md").write_text("own")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "inside.md").symlink_to(tmp_path / "kept" / "own.md")
    assert prompts(units('glob = "tasks/*.md"')) == {"inside": "own"}

    (tmp_path / "tasks" / "leak.md").symlink_to(outside / "secret.md")
    (found,) = mistakes('glob = "tasks/*.md"')
    assert found.startswith("tasks/leak.md: is a link out of the plan's folder")

    (tmp_path / "tasks" / "leak.md").unlink()
    (tmp_path / "tasks" / "deep").symlink_to(outside)
    (found,) = mistakes('glob = "tasks/**/*.md"')
    assert found.startswith("tasks/deep/secret.md: is a link out")


def test_what_is_wrong_with_a_glob_is_reported(mistakes: Mistakes, tmp_path: Path) -> None:
    assert mistakes('glob = "no/*.md"')[0].startswith('plan.toml:5: units.glob = "no/*.md": no file in ')
    found = mistakes('glob = "*.txt"', a__txt="x", b__txt=b"x\n\xff", c__txt="", d__txt=b"x" * 1_048_577, e__txt="x\0")
    assert [mistake.partition(": ")[0] for mistake in found] == ["b.txt:2", "d.txt", "c.txt", "e.txt"]
    (tmp_path / "e.txt").unlink()
    twice = mistakes('glob = "x.*"', x__a="1", x__b="2")
    assert twice == ['x.b: unit "x": this id is already used at x.a; give each unit an id of its own']
    assert "would overwrite" in mistakes('glob = "x.a"\noutput = "x.a"')[0]


# -- rows ------------------------------------------------------------------------------------


def test_rows_of_csv_fill_a_template(units: Units) -> None:
    table = 'csv = "rows.csv"\nprompt = "Port {file} to {to lang}; keep {{file}} and {\\"a\\": 1}"'
    text = '\ufeffid,file,to lang\r\nu1,a.py,"Rust,\n  2021"\r\n\r\nu2,ü.py,Go\r\n'

    assert prompts(units(table, rows__csv=text)) == {
        "u1": 'Port a.py to Rust,\n  2021; keep {file} and {"a": 1}',
        "u2": 'Port ü.py to Go; keep {file} and {"a": 1}',
    }


def test_rows_of_jsonl_fill_a_template(units: Units) -> None:
    rows = [{"n": 1, "t": "x", "more": [1, None]}, {"n": 2.5, "t": None, "more": True}]
    text = "\n".join(json.dumps(row) for row in rows) + "\n\n"

    found = units('jsonl = "rows.jsonl"\nprompt = "{n} {t} {more}"\nid = "u-{n}"\noutput = "{id}.md"', rows__jsonl=text)

    assert prompts(found) == {"u-1": "1 x [1,null]", "u-2.5": "2.5  true"}
    assert [unit.output and Path(unit.output).name for unit in found] == ["u-1.md", "u-2.5.md"]


def test_rows_without_an_id_are_numbered_and_their_prompt_column_is_the_prompt(units: Units) -> None:
    assert prompts(units('csv = "rows.csv"', rows__csv="prompt\na\nb\n")) == {"rows-1": "a", "rows-2": "b"}


def test_a_column_is_never_filled_in_again(units: Units) -> None:
    assert prompts(units('csv = "r.csv"\nprompt = "{a}"', r__csv="id,a,b\nx,{b},1\n")) == {"x": "{b}"}


ROWS = "id,file\na,1\n"
ROW_MISTAKES = {
    'csv = "rows.cvs"\nprompt = "x"': 'plan.toml:5: there is no file rows.cvs; did you mean "rows.csv"?',
    'csv = "rows.csv"\nprompt = "{fle}"': "plan.toml:6: units.prompt = \"{fle}\": there is no column 'fle'; did you",
    'csv = "rows.csv"': 'plan.toml:4: [units] needs prompt = "... {column} ..."; the columns are file, id',
    'csv = "rows.csv"\nglob = "*"': "plan.toml:4: [units] needs exactly one of glob, csv, jsonl, sections; it has 2",
    'prompt = "x"': "plan.toml:4: [units] needs exactly one of glob, csv, jsonl, sections; it has 0",
    "csv = 4": "plan.toml:5: units.csv = 4: must be text in quotes",
    'csvs = "rows.csv"': 'plan.toml:5: unknown key units.csvs; did you mean "csv"?',
}


@pytest.mark.parametrize(("table", "expected"), ROW_MISTAKES.items())
def test_what_is_wrong_with_the_table_is_reported(table: str, expected: str, mistakes: Mistakes) -> None:
    assert mistakes(table, rows__csv=ROWS)[0].startswith(expected)


BAD_CSV = {
    "id,file\na,1\nb\n": "r.csv:3: this row has 1 cells, the first line names 2 columns",
    "id,id\na,1\n": "r.csv:1: each column needs a name of its own",
    'id,file\na,"1\n': "r.csv: not CSV",
    "id,file\n": "r.csv: the file has no rows",
    "": "r.csv: the file has no rows",
    'id,file\n"a",1\n\n"a","x\ny"\n': 'r.csv:4: unit "a": this id is already used at r.csv:2',
    'id,file\nb,"x\ny"\na,\0\n': 'r.csv:4: unit "a": the prompt has a NUL character',
}


@pytest.mark.parametrize(("text", "expected"), BAD_CSV.items())
def test_what_is_wrong_with_a_row_of_csv_is_reported(text: str, expected: str, mistakes: Mistakes) -> None:
    assert mistakes('csv = "r.csv"\nprompt = "Do {file}"', r__csv=text)[0].startswith(expected)


BAD_JSONL = {
    '{"id": "a", "f": 1}\n[1]\n': "r.jsonl:2: each line must be one JSON object",
    '\n\n{"id": "a", \n': "r.jsonl:3: each line must be one JSON object",
    '{"id": "\\ud800", "f": 1}': "r.jsonl:1: each line must be one JSON object",
    '{"id": ' + "[" * 5000: "r.jsonl:1: each line must be one JSON object",
    '{"id": "a", "f": 1}\n{"id": "b"}\n': "r.jsonl:2: this row has no column 'f'",
    '{"id": "a", "f": 1}\n{"f": 1}\n': "r.jsonl:2: this row has no column 'id'",
    '{"id": "a", "f": 1}\n\n{"id": "a", "f": 1}\n': 'r.jsonl:3: unit "a": this id is already used at r.jsonl:1',
}


@pytest.mark.parametrize(("text", "expected"), BAD_JSONL.items())
def test_what_is_wrong_with_a_row_of_jsonl_is_reported(
    text: str, expected: str, mistakes: Mistakes, tmp_path: Path
) -> None:
    assert mistakes('jsonl = "r.jsonl"\nprompt = "Do {f}"', r__jsonl=text)[0].startswith(expected)


def test_the_cost_of_reading_rows_grows_with_their_number_only(units: Units) -> None:
    few, many = cpu_seconds_of_rows(units, 10_000), cpu_seconds_of_rows(units, 100_000)

    assert many < 25 * few  # ten times for ten times the rows; a quadratic reader would need a hundred times


def cpu_seconds_of_rows(units: Units, count: int) -> float:
    """Read a plan of that many rows. Returns processor time, which a busy machine does not change much."""
    rows = "".join(f'{{"id": "u{number}", "file": "src/{number}.py"}}\n' for number in range(count))
    begin = time.process_time()
    found = units('jsonl = "r.jsonl"\nprompt = "Do {file}"\noutput = "out/{id}.md"', r__jsonl=rows)
    assert len(found) == count
    return time.process_time() - begin


# -- sections --------------------------------------------------------------------------------

BRIEF = """# All of it
Shared words.

## First thing ##
Do it.
```sh
## no heading
```
### Detail
more
## Zweites: Ding!
# After
not a task
"""


def test_each_section_is_a_unit(units: Units) -> None:
    assert prompts(units('sections = "brief.md"', brief__md=BRIEF)) == {
        "first-thing": "First thing\n\nDo it.\n```sh\n## no heading\n```\n### Detail\nmore",
        "zweites-ding": "Zweites: Ding!",
    }


def test_what_stands_before_the_sections_can_be_shared(units: Units) -> None:
    found = units('sections = "brief.md"\nprompt = "{intro}|{title}|{body}"', brief__md=BRIEF.replace("\n", "\r\n"))

    assert found[1].prompt == "Shared words.|Zweites: Ding!|"


def test_sections_need_headings_and_names_of_their_own(mistakes: Mistakes) -> None:
    assert mistakes('sections = "b.md"', b__md="# one\n")[0].startswith(
        'plan.toml:5: units.sections = "b.md": the file has no ##'
    )
    assert mistakes('sections = "b.md"', b__md="## a\n\n## A\n")[0].startswith(
        'b.md:3: unit "a": this id is already used at b.md:1'
    )


@given(st.text("# ~`ab\n\r\x0c\u2028"))
def test_no_line_is_lost_or_counted_wrong(text: str) -> None:
    _, sections = split_sections(text)

    for line, title, _ in sections:
        assert text.split("\n")[line - 1].startswith("##")
        assert title in text.split("\n")[line - 1]


# -- templates -------------------------------------------------------------------------------


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.text(), min_size=1), st.text())
def test_a_template_is_filled_with_what_the_row_has(row: dict[str, str], around: str) -> None:
    plain = around.replace("{", "").replace("}", "")
    text = plain.join(f"{{{name}}}" for name in row)

    assert Template(text, row.keys()).fill(row) == plain.join(row.values())


@given(st.text("{}ab c$"), st.sets(st.sampled_from(["a", "b", "a b"])))
def test_any_text_is_a_template(text: str, columns: set[str]) -> None:
    Template(text, columns).fill(dict.fromkeys(columns, "x"))


def test_the_braces_of_a_shell_are_no_placeholders() -> None:
    assert command_placeholders("x {prompt} ${HOME} {{id}} {1..3} {a,b} { print } {odd}") == ["prompt", "odd"]


SOURCES = st.sampled_from(["csv", "jsonl", "sections"])


@given(SOURCES, st.binary() | st.text('{}[]",\n#`id1').map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_units_or_refused(units: Units, source: str, content: bytes) -> None:
    with suppress(InvalidPlan):
        units(f'{source} = "any"\nprompt = "{{id}}"', any=content)
