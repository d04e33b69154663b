"""Checks of the English: banned words, first words of docstrings, and the layer list of CONTRIBUTING.md."""

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.tidy.source import Finding, Sources

BANNED = {
    r"\b(?:tells?|told|telling)\b": "emit, log, print, notify, report or return",
    r"\b(?:hears?|heard|hearing)\b": "receive, read, or name the event",
    r"\b(?:mend(?:s|ed|ing)?)\b": "fix or repair",
    r"\banew\b": "again",
    r"\bin vain\b": "without effect",
    r"\bfor ever\b": "forever",
    r"\bof old\b": "former, or leave it out",
    r"; how many": "a sentence: Returns how many ...",
    r"\b(?:look(?:s|ed|ing)? at)\b": "check, read, poll or probe",
    r"\bgo(?:es)? on\b": "continue",
    r"\bis none of\b": "does not belong to, or is not",
    r"\b(?:giv(?:es?|en|ing) on)\b": "pass or release",
}
_BANNED = re.compile("|".join(f"({pattern})" for pattern in BANNED).replace(" ", " +"), re.IGNORECASE)
OPENERS = re.compile(
    r"(?:What|Whether|Those|Of|As|Who|Nobody|Its|How|When|Where|If|The|A|An|One|All|Every|In|Nothing|Until|It|No|"
    r"Everything|By|From|For|Each|With|Some|Once|This|That|These|They|There|Not|Only|After|Before|So|At|On|Whose|"
    r"Which|None|Any)\b"
)
"""First words that are no verbs."""
LAYERS_BEGIN, LAYERS_END = "<!-- layers: generated -->", "<!-- /layers -->"


def banned_words(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        for line, text in (*module.docstrings, *module.comments):
            for match in _BANNED.finditer(re.sub(r"\s", " ", text)):
                better = [*BANNED.values()][(match.lastindex or 1) - 1]
                at = line + text.count("\n", 0, match.start())
                yield Finding(module.package, 1, f"{module.shown}:{at}", f'"{match[0]}": write {better}')


def docstring_openers(sources: Sources) -> Iterator[Finding]:
    """Find docstrings of functions that do not begin with a verb. Those of properties may be noun phrases."""
    for module in sources.modules:
        for function in module.functions:
            if any(name.split(".")[-1] in ("property", "cached_property") for name in function.decorators):
                continue
            first = OPENERS.match(ast.get_docstring(function.node) or "")
            if first:
                yield Finding(
                    module.package,
                    1,
                    module.where(function.node),
                    f'the docstring of {function.name} begins with "{first[0]}": begin with a verb (Return, Move, ...)',
                )


def layers_in_contributing(contributing: str, pyproject: str) -> Iterator[Finding]:
    where = "CONTRIBUTING.md:1"
    if LAYERS_BEGIN not in contributing or LAYERS_END not in contributing:
        problem = f"no layer list: add the lines `{LAYERS_BEGIN}` and `{LAYERS_END}` and run `python -m tests.tidy`"
        yield Finding("CONTRIBUTING.md", 1, where, problem)
    elif with_layers(contributing, pyproject) != contributing:
        problem = "the layer list differs from pyproject.toml: run `python -m tests.tidy`"
        yield Finding("CONTRIBUTING.md", 1, where, problem)


def with_layers(contributing: str, pyproject: str) -> str:
    """Return CONTRIBUTING.md with the layers of pyproject.toml between its markers, if it has them."""
    before, begin, rest = contributing.partition(LAYERS_BEGIN)
    _, end, after = rest.partition(LAYERS_END)
    return f"{before}{begin}\n{layer_list(pyproject)}{end}{after}" if begin and end else contributing


def layer_list(pyproject: str) -> str:
    """Render the layers of import-linter as a numbered list, the highest first."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    lines = []
    for number, layer in enumerate(layers, 1):
        names = [name.strip(" ()").removeprefix("paceline.") for name in re.split(r"[|:]", layer)]
        lines.append(f"{number}. {', '.join(f'`{name}`' for name in names)}\n")
    return "".join(lines)
