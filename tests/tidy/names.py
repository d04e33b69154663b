"""Checks of names and borders: module names, names in two packages, `__all__`, who may use what."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.tidy.source import Finding, FunctionNode, Module, Sources

NOUNS = frozenset({"feed", "pacing", "parsing", "start_spacing", "testing", "wiring"})
"""Nouns that end like a verb. `testing` is a public path, `pacing` a reason of the public contract, `wiring` the usual
word for a composition root, and `parsing` the field's name for what parsers do."""
ENTRY_POINT = "main"
"""The usual name of a program's entry point; every program has one."""
PUBLIC_MODULES = ("paceline", "paceline.core", "paceline.core.signals", "paceline.detect", "paceline.testing")
STATE_OF_CORE = frozenset({"ledger", "_ledger", "books", "_books"})


def module_names(sources: Sources) -> Iterator[Finding]:
    """Find modules and packages that are named with a gerund or a participle."""
    for name, module in _path_parts(sources).items():
        if name.endswith(("ing", "ed")) and name not in NOUNS:
            yield Finding(
                name,
                1,
                f"{module.shown}:1",
                f"`{name}` is no noun: name the thing that lives there (a true noun goes into NOUNS of names.py)",
            )


def repeated_names(sources: Sources) -> Iterator[Finding]:
    """Find public types and functions that two packages define at module level."""
    defined: dict[str, dict[str, str]] = defaultdict(dict)
    for module in sources.modules:
        for node in module.tree.body:
            if (
                isinstance(node, FunctionNode | ast.ClassDef)
                and not node.name.startswith("_")
                and node.name != ENTRY_POINT
            ):
                defined[node.name].setdefault(module.package, module.where(node))
    for name, places in sorted(defined.items()):
        if len(places) > 1:
            yield Finding(
                name,
                len(places),
                " and ".join(places.values()),
                f"{len(places)} packages define `{name}`, the budget is 1: one word for one thing, rename or share it",
            )


def unexplained_constants(sources: Sources) -> Iterator[Finding]:
    """Find numeric constants of the core without a comment beside or above, or a docstring below."""
    for module in sources.modules:
        if module.package != "core":
            continue
        commented = {comment.line for comment in module.comments}
        for node, following in zip(module.tree.body, [*module.tree.body[1:], None], strict=True):
            name = _numeric_constant(node)
            if not name or _is_text(following) or commented & {node.lineno - 1, node.lineno, node.end_lineno}:
                continue
            yield Finding(
                name,
                1,
                module.where(node),
                f"{name} has no reason: say what the number trades off, in a comment or a docstring below it",
            )


def public_names(sources: Sources) -> Iterator[Finding]:
    """Find public modules whose `__all__` is missing or differs from the public names in them."""
    for name in PUBLIC_MODULES:
        module = sources.by_name.get(name)
        if module is None:
            yield Finding(name, 1, name, f"the public module {name} does not exist: its path is a promise")
            continue
        listed, (required, possible) = exported(module), _present(module)
        if listed is None:
            yield Finding(name, 1, f"{module.shown}:1", f"{name} has no `__all__`: list its public names")
        elif required - listed or listed - possible:
            difference = ", ".join(sorted(required - listed | listed - possible))
            problem = f"`__all__` of {name} differs from its public names in: {difference}"
            yield Finding(name, 1, f"{module.shown}:1", problem)


def testing_in_production(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        if module.package == "testing":
            continue
        for node in module.nodes:
            if any(name == "paceline.testing" or name.startswith("paceline.testing.") for name in _imported(node)):
                yield Finding(
                    module.package,
                    1,
                    module.where(node),
                    "shipped code imports paceline.testing: move what both need into a package of its own",
                )


def core_state_outside_core(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        if module.package == "core":
            continue
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr in STATE_OF_CORE:
                yield Finding(
                    module.package,
                    1,
                    module.where(node),
                    f"`.{node.attr}` is state of the core: ask a method of Governor instead",
                )


def exported(module: Module) -> set[str] | None:
    """Return the names in `__all__`, None without one."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return None


def _present(module: Module) -> tuple[set[str], set[str]]:
    """Return the names that `__all__` must list, and those that it may: imports for own use need no listing."""
    imported: set[str] = set()
    defined: set[str] = set()
    for node in module.tree.body:
        for each in node.body if isinstance(node, ast.If) else (node,):  # names that are imported on use
            if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] == "paceline":
                imported |= {alias.asname or alias.name for alias in each.names}
        if isinstance(node, FunctionNode | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    used = {node.id for node in module.nodes if isinstance(node, ast.Name)}
    required, possible = defined | (imported - used), defined | imported
    return _without_private(required), _without_private(possible)


def _without_private(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def _path_parts(sources: Sources) -> dict[str, Module]:
    parts: dict[str, Module] = {}
    for module in sources.modules:
        for part in module.path.removesuffix(".py").split("/"):
            parts.setdefault(part, module)
    return parts


def _numeric_constant(node: ast.stmt) -> str:
    """Return the name that the statement binds to a number, or nothing."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return ""
    return target.id if isinstance(target, ast.Name) and _is_number(value) else ""


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) or _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
