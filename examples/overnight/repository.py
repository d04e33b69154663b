"""Make a small repository, forty tasks and the plans for a night of work.

python examples/overnight/repository.py FOLDER               # for Claude Code and Codex
python examples/overnight/repository.py FOLDER --stand-in    # for a script in place of both: no login, no network

FOLDER gets `measures` (a git repository: a Python package and the tests of forty functions that nobody has written),
`tasks` (one prompt per function), `metric.toml` and `science.toml` (the plans) and `paceline.toml`.
docs/overnight.md continues from here.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Function(NamedTuple):
    """A function to write. `body` is what it returns, `example` one call of it with its result."""

    name: str
    body: str
    example: tuple[str, str]
    is_rounded: bool = False
    """The task also asks for two decimal places. It is easily overlooked: the first check then fails."""
    is_listed: bool = False
    """The task also asks for a line at the end of README.md. Two such changes conflict."""

    @property
    def result(self) -> str:
        return f"round({self.body}, 2)" if self.is_rounded else self.body


METRIC = (
    Function("acres_to_hectares", "x * 0.40468564224", ("1000", "404.69"), is_rounded=True),
    Function("bar_to_pascals", "x * 100000", ("2", "200000")),
    Function("celsius_to_fahrenheit", "x * 9 / 5 + 32", ("100", "212")),
    Function("celsius_to_kelvin", "x + 273.15", ("0", "273.15")),
    Function("fahrenheit_to_celsius", "(x - 32) * 5 / 9", ("212", "100")),
    Function("fathoms_to_metres", "x * 1.8288", ("1", "1.8288")),
    Function("feet_to_metres", "x * 0.3048", ("10", "3.048"), is_listed=True),
    Function("furlongs_to_metres", "x * 201.168", ("1", "201.168")),
    Function("gallons_to_litres", "x * 3.785411784", ("10", "37.85"), is_rounded=True),
    Function("grams_to_ounces", "x / 28.349523125", ("28.349523125", "1")),
    Function("inches_to_centimetres", "x * 2.54", ("100", "254")),
    Function("kilometres_to_miles", "x / 1.609344", ("1.609344", "1")),
    Function("knots_to_kilometres_per_hour", "x * 1.852", ("1000", "1852")),
    Function("litres_to_pints", "x / 0.56826125", ("0.56826125", "1")),
    Function("metres_to_yards", "x / 0.9144", ("0.9144", "1"), is_listed=True),
    Function("miles_to_kilometres", "x * 1.609344", ("1", "1.609344")),
    Function("nautical_miles_to_metres", "x * 1852", ("3", "5556")),
    Function("pounds_to_kilograms", "x * 0.45359237", ("1", "0.45359237")),
    Function("stones_to_kilograms", "x * 6.35029318", ("1", "6.35029318")),
    Function("tonnes_to_kilograms", "x * 1000", ("1.5", "1500")),
)
SCIENCE = (
    Function("calories_to_joules", "x * 4.184", ("1000", "4184")),
    Function("centuries_to_years", "x * 100", ("3", "300")),
    Function("circle_area", "3.141592653589793 * x * x", ("10", "314.16"), is_rounded=True),
    Function("cube_volume", "x ** 3", ("3", "27")),
    Function("days_to_seconds", "x * 86400", ("2", "172800")),
    Function("decades_to_years", "x * 10", ("4", "40")),
    Function("degrees_to_gradians", "x * 10 / 9", ("90", "100")),
    Function("digit_sum", "sum(int(digit) for digit in str(x))", ("1234", "10")),
    Function("dozens_to_pieces", "x * 12", ("3", "36")),
    Function("factorial", "1 if x < 2 else x * factorial(x - 1)", ("5", "120")),
    Function("hours_to_minutes", "x * 60", ("2", "120")),
    # The test is wrong: 1900 was no leap year. No agent can make it pass, so a person must look at it.
    Function("is_leap_year", "x % 4 == 0 and (x % 100 != 0 or x % 400 == 0)", ("1900", "True")),
    Function("is_palindrome", "str(x) == str(x)[::-1]", ("12321", "True")),
    Function("kilobytes_to_bytes", "x * 1000", ("2", "2000")),
    Function("kibibytes_to_bytes", "x * 1024", ("2", "2048")),
    Function("light_years_to_metres", "x * 9460730472580800", ("1", "9460730472580800")),
    Function("percent_to_ratio", "x / 100", ("50", "0.5")),
    Function("triangle_number", "x * (x + 1) // 2", ("100", "5050")),
    Function("watts_to_horsepower", "x / 735.49875", ("735.49875", "1")),
    Function("weeks_to_days", "x * 7", ("6", "42")),
)

PLAN = """\
[campaign]
name = "{name}"
{agent}
check = ["sh", "-c", 'python3 -m unittest "tests.test_${{PACELINE_UNIT##*/}}"']
check_timeout = "1m"
check_rounds = 2        # how often a failed check goes back into the conversation
commit = true
deliver = "branch"

[campaign.workspace]
kind = "worktree"       # a folder and a branch for each unit

[units]
glob = "tasks/{name}/*.md"
cwd = "measures"
"""
CLAUDE = """\
agent = "claude"
model = "claude-opus-4-6"
accounts = ["max-1"]
permissions = "edit"    # may change files in its workspace\
"""
CODEX = """\
agent = "codex"
model = "gpt-5"
accounts = ["team-key"]
permissions = "edit"    # may change files in its workspace\
"""
SETTINGS = """\
[pool]
sessions = 4            # concurrent sessions, all campaigns together
"""
ACCOUNTS = """\

[accounts.max-1]
provider = "anthropic"
kind = "subscription"   # never billed per token: API keys are removed from its sessions
env = { CLAUDE_CONFIG_DIR = "~/.claude-max-1" }

[accounts.team-key]
provider = "openai"
kind = "metered"        # billed per token
key_env = "TEAM_KEY"    # the variable that holds the key
"""
STAND_IN = '''\
"""Stands in for an agent: it does what the task on standard input says, but overlooks rounding at first."""

import os
import pathlib
import re
import sys

task = sys.stdin.read()
path, name = re.search(r"`(measures/(\\w+)\\.py)`", task).groups()
body = re.search(r"It returns `(.*)`", task)[1]
if "Round" in task and "PACELINE_CHECK_OUTPUT" in os.environ:
    body = f"round({body}, 2)"
pathlib.Path(path).write_text(f"def {name}(x):\\n    return {body}\\n")
if "README.md" in task:
    with open("README.md", "a") as readme:
        readme.write(f"- {name}\\n")
print(f"I wrote {name} in {path}.")
'''


def task_of(function: Function) -> str:
    lines = [f"Write `measures/{function.name}.py` with one function, `{function.name}(x)`."]
    lines += [f"It returns `{function.body}`."]
    lines += ["Round the result to 2 decimal places."] if function.is_rounded else []
    lines += [f"Add the line `- {function.name}` to the end of README.md."] if function.is_listed else []
    lines += [f"Its test is `tests/test_{function.name}.py`. Do not change the test."]
    return "\n".join(lines) + "\n"


def test_of(function: Function) -> str:
    argument, result = function.example
    return (
        f"import unittest\n\nfrom measures.{function.name} import {function.name}\n\n\n"
        "class Test(unittest.TestCase):\n"
        "    def test_an_example(self):\n"
        f"        self.assertEqual({function.name}({argument}), {result})\n"
    )


def make_repository(folder: Path) -> None:
    for name in ("measures", "tests"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    (folder / "README.md").write_text("# Measures\n\nSmall functions about measures:\n\n")
    (folder / ".gitignore").write_text("__pycache__/\n")
    for function in (*METRIC, *SCIENCE):
        (folder / "tests" / f"test_{function.name}.py").write_text(test_of(function))
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-qm", "Test forty functions")):
        subprocess.run(["git", *command], cwd=folder, check=True)


def make_plan(folder: Path, name: str, functions: tuple[Function, ...], agent: str) -> None:
    tasks = folder / "tasks" / name
    tasks.mkdir(parents=True)
    for function in functions:
        (tasks / f"{function.name}.md").write_text(task_of(function))
    (folder / f"{name}.toml").write_text(PLAN.format(name=name, agent=agent))


def make_night(folder: Path, *, has_stand_in: bool) -> None:
    """Write the repository, the tasks, the plans and the settings into a folder."""
    make_repository(folder / "measures")
    stand_in = folder / "stand_in.py"
    if has_stand_in:
        stand_in.write_text(STAND_IN)
    command = f'command = ["{sys.executable}", "{stand_in}"]'
    make_plan(folder, "metric", METRIC, command if has_stand_in else CLAUDE)
    make_plan(folder, "science", SCIENCE, command if has_stand_in else CODEX)
    (folder / "paceline.toml").write_text(SETTINGS if has_stand_in else SETTINGS + ACCOUNTS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a repository, forty tasks and the plans for a night.")
    parser.add_argument("folder", type=Path, help="a new folder, or an empty one")
    parser.add_argument("--stand-in", action="store_true", help="a script instead of Claude Code and Codex")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder} is not empty; name a new folder")
    make_night(folder, has_stand_in=arguments.stand_in)
    print(f"made a repository, 40 tasks and 2 plans in {folder}")


if __name__ == "__main__":
    main()
