"""The parsed source that the checks read.

Here: modules, their functions, classes, comments and docstrings, and which class a name means.
Never here: what is right or wrong about them.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ROOT = "paceline"


class Finding(NamedTuple):
    """One thing that is over a budget. `key` names it in the allow-list, also after its module has moved."""

    key: str
    value: int
    where: str
    problem: str


class Function(NamedTuple):
    """A function or method, with the names around it."""

    node: FunctionNode
    name: str
    owner: ast.ClassDef | None

    @property
    def decorators(self) -> list[str]:
        return [dotted(decorator) for decorator in self.node.decorator_list]


class Text(NamedTuple):
    """A comment or a docstring, and the line on which it starts."""

    line: int
    text: str


class Class(NamedTuple):
    """A class and the module that defines it."""

    module: "Module"
    node: ast.ClassDef


class Module:
    """One parsed file. `path` is relative to its root folder, `shown` is how messages name it."""

    def __init__(self, path: str, text: str, shown: str = "") -> None:
        self.path = path
        self.text = text
        self.shown = shown or path
        self.tree = ast.parse(text)
        self.lines = text.splitlines()

    @property
    def name(self) -> str:
        parts = [ROOT, *self.path.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The first part of the path: `core` of `core/governor.py`, `clock` of `clock.py`."""
        return self.path.split("/")[0].removesuffix(".py")

    def where(self, node: ast.AST) -> str:
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        return list(_functions(self.tree, "", None))

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """The module and the original name of everything that `from ... import ...` brings in."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def comments(self) -> list[Text]:
        if "#" not in self.text:
            return []
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [Text(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    @cached_property
    def docstrings(self) -> list[Text]:
        """Every string that stands alone: docstrings, and those under constants and fields."""
        return [
            Text(node.lineno, node.value.value)
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]


class Sources:
    """All modules of the package."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.by_name = {module.name: module for module in modules}

    def bases(self, found: Class) -> tuple[list[Class], list[str]]:
        """Return all classes of ours that `found` inherits from, and the dotted names of foreign ones."""
        ours: list[Class] = []
        foreign: list[str] = []
        for base in found.node.bases:
            name = dotted(base)
            target = self.find_class(found.module, name)
            if target is None:
                foreign.append(name)
            elif target not in ours:
                ours.append(target)
                further, others = self.bases(target)
                ours.extend(each for each in further if each not in ours)
                foreign.extend(others)
        return ours, foreign

    def find_class(self, module: Module, name: str) -> Class | None:
        """Return the class that `name` means in `module`, through imports and re-exports."""
        if name in module.classes:
            return Class(module, module.classes[name])
        if name not in module.imports:
            return None
        origin, original = module.imports[name]
        source = self.by_name.get(origin)
        return None if source is None or source is module else self.find_class(source, original)

    @cached_property
    def all_classes(self) -> list[Class]:
        return [Class(module, node) for module in self.modules for node in module.classes.values()]


def load(folder: Path, shown: str, containing: str = "") -> list[Module]:
    """Parse every Python file below `folder` with the text `containing` in it."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text, relative = path.read_text("utf-8"), path.relative_to(folder).as_posix()
        if containing in text:
            found.append(Module(relative, text, f"{shown}/{relative}"))
    return found


def methods(node: ast.ClassDef) -> list[FunctionNode]:
    return [each for each in node.body if isinstance(each, FunctionNode)]


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for a name, and for what is called or subscripted by it; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return dotted(node.func)
    return dotted(node.value) if isinstance(node, ast.Subscript) else ""


def _functions(node: ast.AST, prefix: str, owner: ast.ClassDef | None) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode):
            yield Function(child, prefix + child.name, owner)
            yield from _functions(child, f"{prefix}{child.name}.", None)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", child)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _functions(child, prefix, owner)
