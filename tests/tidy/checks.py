"""All checks, run over this repository."""

import gc
import re
from pathlib import Path

from tests.tidy import names, prose, references, shape
from tests.tidy.ratchet import Report
from tests.tidy.source import Sources, load

REPOSITORY = Path(__file__).parents[2]
ALLOWED = REPOSITORY / "tests" / "tidy_allowed.toml"
OUTSIDE = ("tests", "benchmarks", "scripts", "examples")


def run_all() -> list[Report]:
    """Return the findings of every check in this repository."""
    gc.disable()  # syntax trees are many objects and no garbage: a quarter of the time went into collecting none
    try:
        return _run_all()
    finally:
        gc.enable()


def _run_all() -> list[Report]:
    sources = Sources(load(REPOSITORY / "src" / "paceline", "src/paceline"))
    tests = load(REPOSITORY / "tests", "tests", containing="sleep")
    words = words_outside()
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    pyproject = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    return [
        Report("module_lines", False, [*shape.module_lines(sources)]),
        Report("function_lines", False, [*shape.function_lines(sources)]),
        Report("class_methods", False, [*shape.class_methods(sources)]),
        Report("parameters", False, [*shape.parameters(sources)]),
        Report("mixins", False, [*shape.mixins(sources)]),
        Report("module_names", False, [*names.module_names(sources)]),
        Report("repeated_names", False, [*names.repeated_names(sources)]),
        Report("unexplained_constants", False, [*names.unexplained_constants(sources)]),
        Report("public_names", False, [*names.public_names(sources)]),
        Report("testing_in_production", True, [*names.testing_in_production(sources)]),
        Report("core_state_outside_core", True, [*names.core_state_outside_core(sources)]),
        Report("unreferenced", False, [*references.unreferenced(sources, words)]),
        Report("only_used_outside", False, [*references.only_used_outside(sources, words)]),
        Report("real_sleeps", True, [*references.real_sleeps(tests)]),
        Report("banned_words", True, [*prose.banned_words(sources)]),
        Report("docstring_openers", True, [*prose.docstring_openers(sources)]),
        Report("layers_in_contributing", False, [*prose.layers_in_contributing(contributing, pyproject)]),
    ]


def words_outside() -> set[str]:
    """Return every word in the Python files beside the package, without those of these checks."""
    own = {REPOSITORY / "tests" / "tidy", REPOSITORY / "tests" / "test_tidy.py"}
    words: set[str] = set()
    for folder in OUTSIDE:
        for path in (REPOSITORY / folder).rglob("*.py"):
            if not own & {path, path.parent}:
                words.update(re.findall(r"\w+", path.read_text("utf-8")))
    return words
