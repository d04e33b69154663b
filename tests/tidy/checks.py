"""All checks, run over this repository."""

import contextlib
import gc
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import names, prose, references, shape, totals
from tests.tidy.ratchet import Report
from tests.tidy.source import Sources, load

REPOSITORY = Path(__file__).parents[2]
ALLOWED = REPOSITORY / "tests" / "tidy_allowed.toml"
OUTSIDE = ("tests", "benchmarks", "scripts", "examples")


def run_all() -> list[Report]:
    """Return the findings of every check in this repository."""
    with _without_collection():
        return _run_all()


def warnings() -> list[str]:
    """Return what is larger than usual. It is a place to look, not a mistake: one idea may be large."""
    with _without_collection():
        sources = _sources()
        findings = [
            *shape.module_lines(sources),
            *shape.function_lines(sources),
            *shape.class_methods(sources),
            *shape.parameters(sources),
            *names.module_names(sources),
            *names.repeated_names(sources),
        ]
    return [f"{finding.where}: {finding.problem}" for finding in findings]


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector. Syntax trees are many objects and no garbage: it took a quarter of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _sources() -> Sources:
    return Sources(load(REPOSITORY / "src" / "paceline", "src/paceline"))


def _run_all() -> list[Report]:
    sources = _sources()
    tests = load(REPOSITORY / "tests", "tests", containing="sleep")
    words = words_outside()
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    pyproject = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    return [
        Report("totals", False, [*totals.totals(sources, REPOSITORY / "docs")]),
        Report("mixins", False, [*shape.mixins(sources)]),
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
