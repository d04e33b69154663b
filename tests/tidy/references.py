"""Checks of what is used: functions that nobody calls, and tests that really sleep."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.tidy.names import PUBLIC_MODULES, exported
from tests.tidy.shape import PLAIN_BASES
from tests.tidy.source import Class, Finding, Function, FunctionNode, Module, Sources, dotted, methods

PLAIN_DECORATORS = frozenset(
    [
        "abstractmethod",
        "asynccontextmanager",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "final",
        "lru_cache",
        "overload",
        "override",
        "property",
        "staticmethod",
    ]
)
"""Decorators that register nothing: what they decorate must be called by name."""
HANDLER_PREFIXES = ("on_", "_on_", "action_", "watch_", "validate_", "compute_", "key_", "visit_")
"""A framework calls methods with these names."""
COMMAND_SUFFIX = "_command"
"""`cli/main.py` makes these names from those of commands, and its test reads them all."""
SLEEPERS = frozenset({"asyncio.sleep", "time.sleep", "anyio.sleep", "trio.sleep", "sleep"})


def unreferenced(sources: Sources, words_outside: set[str]) -> Iterator[Finding]:
    """Find functions that nobody mentions by name: not the package, and nothing outside it either."""
    for module, function in _without_reference(sources):
        if function.node.name not in words_outside:
            yield Finding(
                function.name,
                1,
                module.where(function.node),
                f"nobody calls {function.name}: remove it",
            )


def only_used_outside(sources: Sources, words_outside: set[str]) -> Iterator[Finding]:
    """Find functions that only tests, benchmarks, scripts or examples mention by name."""
    for module, function in _without_reference(sources):
        if function.node.name in words_outside:
            yield Finding(
                function.name,
                1,
                module.where(function.node),
                f"only code outside of src calls {function.name}: move it there, or test what the package really uses",
            )


def real_sleeps(tests: list[Module]) -> Iterator[Finding]:
    """Find tests that wait in real time. `sleep(0)` only lets others run, and a virtual clock costs nothing."""
    for module in tests:
        if "sleep" not in module.text:
            continue
        functions = sorted(module.functions, key=lambda each: each.node.lineno)
        for node in module.nodes:
            if isinstance(node, ast.Call) and _sleeps(node):
                around = [each.name for each in functions if _encloses(each.node, node)]
                yield Finding(
                    around[0] if around else module.path,
                    1,
                    module.where(node),
                    "a test sleeps in real time: use VirtualClock, or wait for the event itself",
                )


@cache
def _without_reference(sources: Sources) -> list[tuple[Module, Function]]:
    used = _references(sources)
    exempt = _exempt_methods(sources)
    return [
        (module, function)
        for module in sources.modules
        for function in module.functions
        if function.node.name not in used
        and id(function.node) not in exempt
        and not function.node.name.startswith(("__", "test_", *HANDLER_PREFIXES))
        and not (module.path.startswith("cli/commands/") and function.node.name.endswith(COMMAND_SUFFIX))
        and all(_is_plain(name) for name in function.decorators)
    ]


def _references(sources: Sources) -> set[str]:
    used: set[str] = set()
    for module in sources.modules:
        spans: dict[str, list[FunctionNode]] = {}
        for function in module.functions:
            spans.setdefault(function.node.name, []).append(function.node)
        for node in module.nodes:
            name = _mentioned(node)
            if name and not (name in spans and _is_recursion(node, spans[name])):
                used.add(name)
        if module.name in PUBLIC_MODULES or module.package == "integrations":
            used |= exported(module) or set(module.imports)
    return used


def _mentioned(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_recursion(node: ast.AST, same_name: list[FunctionNode]) -> bool:
    """Return whether a function only mentions itself here. `other.name` may well be another one."""
    if isinstance(node, ast.Attribute) and dotted(node.value) not in ("self", "cls"):
        return False
    return isinstance(node, ast.Name | ast.Attribute) and any(_encloses(each, node) for each in same_name)


def _exempt_methods(sources: Sources) -> set[int]:
    """Return the methods that others call by contract: of protocols, overrides, and of public classes."""
    public = _public_classes(sources)
    exempt: set[int] = set()
    for found in sources.all_classes:
        ours, foreign = sources.bases(found)
        inherited = {method.name for base in ours for method in methods(base.node)}
        last_names = {name.split(".")[-1] for name in foreign}
        open_to_others = id(found.node) in public or "Protocol" in last_names or last_names - PLAIN_BASES - {"Struct"}
        for method in methods(found.node):
            if method.name in inherited or (open_to_others and not method.name.startswith("_")):
                exempt.add(id(method))
    return exempt


def _public_classes(sources: Sources) -> set[int]:
    """Return the classes of the public modules and of the integrations, with their bases."""
    found: list[Class] = []
    for module in sources.modules:
        if module.name in PUBLIC_MODULES or module.package == "integrations":
            names = exported(module) or {*module.imports, *module.classes}
            found += [each for name in names if (each := sources.find_class(module, name)) is not None]
    return {id(each.node) for public in found for each in [public, *sources.bases(public)[0]]}


def _is_plain(decorator: str) -> bool:
    return decorator.split(".")[-1] in PLAIN_DECORATORS | {"setter", "deleter"}


def _sleeps(node: ast.Call) -> bool:
    if dotted(node.func) not in SLEEPERS and not dotted(node.func).endswith("SystemClock.sleep"):
        return False
    first = node.args[0] if node.args else None
    return not (isinstance(first, ast.Constant) and first.value == 0)


def _encloses(function: FunctionNode, node: ast.expr) -> bool:
    return function.lineno <= node.lineno <= (function.end_lineno or 0)
