"""Totals of the code base: lines, files, imports and fields that are written twice.

A total counts what a reader has to hold, wherever it stands. A module or a class may be large if it is one idea; the
sum of them may only fall. `python -m tests.tidy` lowers the bars in `tidy_allowed.toml` to the present values.
"""

import ast
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tidy.source import Finding, Module, Sources

TEST_KIT: Final = ("testing", "simulation")
SMALL_LINES: Final = 60
"""A module with fewer lines is mostly its own head: it is a piece of another idea."""
TWIN_FIELDS, TWIN_SHARE = 6, 0.6
"""Two structs with as many equal fields, and this share of the smaller one, are one thing with two shapes."""
COPIED_FIELDS: Final = 5
"""A call that passes as many fields of the same name on copies a value by hand."""
CONTENTS_FROM: Final = 10
"""A package with as many modules needs a table of contents: one line for every two modules."""


def totals(sources: Sources, docs: Path) -> Iterator[Finding]:
    """Yield one value for each total, and one for the lines of each package."""
    product = [module for module in sources.modules if module.package not in TEST_KIT]
    values = {
        "product lines": sum(len(module.lines) for module in product),
        "product code lines": sum(_code_lines(module) for module in product),
        "files": len(sources.modules),
        "small files": sum(len(module.lines) < SMALL_LINES for module in sources.modules),
        "lines of heads": sum(_head_lines(module) for module in sources.modules),
        "import edges": sum(len(_imported(module, sources)) for module in sources.modules),
        "classes": sum(isinstance(node, ast.ClassDef) for module in sources.modules for node in module.nodes),
        "twin structs": len(twins(sources)),
        "copied fields": sum(_copied_fields(node) for module in sources.modules for node in module.nodes),
        "numbers in core": sum(_numbers(module) for module in sources.modules if module.package == "core"),
        "packages without contents": len(_without_contents(sources)),
        "words of docs": sum(len(page.read_text("utf-8").split()) for page in _written_pages(docs)),
    }
    lines = Counter[str]()
    for module in sources.modules:
        lines[f"lines of {module.package}"] += len(module.lines)
    for key, value in {**values, **dict(sorted(lines.items()))}.items():
        yield Finding(key, value, "src/paceline", f"{key}: {value}, which is more than before: take out as much")


def twins(sources: Sources) -> list[tuple[str, str]]:
    """Return the pairs of structs with nearly the same fields."""
    structs = {
        f"{module.path}:{node.name}": fields
        for module in sources.modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and len(fields := _fields(node)) >= COPIED_FIELDS
    }
    return [
        (name, other)
        for (name, fields), (other, others) in itertools.combinations(structs.items(), 2)
        if len(fields & others) >= max(TWIN_FIELDS, TWIN_SHARE * min(len(fields), len(others)))
    ]


def _fields(node: ast.ClassDef) -> frozenset[str]:
    annotated = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
    return frozenset(target.id for target in annotated if isinstance(target, ast.Name))


def _code_lines(module: Module) -> int:
    """Count lines without blank ones, comments, docstrings and the texts below constants."""
    texts = {
        line
        for node in module.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(map(str.strip, module.lines), 1)
    return sum(bool(line) and not line.startswith("#") and number not in texts for number, line in lines)


def _head_lines(module: Module) -> int:
    """Count the lines before the first statement that is neither an import nor a text."""
    for node in module.tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not isinstance(node, ast.Import | ast.ImportFrom):
            return node.lineno - 1
    return len(module.lines)


def _imported(module: Module, sources: Sources) -> set[str]:
    """Return the modules of ours that one imports."""
    found = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("paceline")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paceline"):
            named = ((f"{node.module}.{alias.name}", node.module or "") for alias in node.names)
            found |= {whole if whole in sources.by_name else parent for whole, parent in named}
    return found


def _copied_fields(node: ast.AST) -> int:
    if not isinstance(node, ast.Call):
        return 0
    values = ((each.arg, each.value) for each in node.keywords)
    count = sum(isinstance(value, ast.Attribute) and value.attr.lstrip("_") == name for name, value in values)
    return count if count >= COPIED_FIELDS else 0


def _numbers(module: Module) -> int:
    """Count the numbers beside 0 and 1 in constants and in defaults of fields and parameters."""
    values: list[ast.expr] = []
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef):
            values += [each.value for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign) and each.value]
        elif isinstance(node, ast.arguments):
            values += [default for default in (*node.defaults, *node.kw_defaults) if default is not None]
    constants = (each.value for value in values for each in ast.walk(value) if isinstance(each, ast.Constant))
    return sum(type(value) in (int, float) and value not in (0, 1) for value in constants)


def _without_contents(sources: Sources) -> list[str]:
    """Return the large packages whose `__init__` does not name what is in them."""
    counts = Counter(module.path.rpartition("/")[0] for module in sources.modules)
    return [
        module.path
        for module in sources.modules
        if module.path.endswith("/__init__.py")
        and (count := counts[module.path.rpartition("/")[0]]) >= CONTENTS_FROM
        and len(module.lines) < count // 2
    ]


def _written_pages(docs: Path) -> Iterator[Path]:
    """Yield the pages that people wrote: no decisions, no generated reference."""
    for page in sorted(docs.rglob("*.md")):
        if not {"decisions", "reference"} & set(page.relative_to(docs).parts):
            yield page
