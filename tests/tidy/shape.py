"""Checks of sizes and of classes: modules, functions, methods, parameters, mixins."""

import ast
from collections.abc import Iterator

from tests.tidy.source import Class, Finding, Function, FunctionNode, Module, Sources, dotted, methods

MODULE_LINES = 500
CORE_MODULE_LINES = 300
FUNCTION_LINES = 50
CLASS_METHODS = 20
PARAMETERS = 7
FACADES = frozenset({"Governor", "Limiter", "Client", "Store", "TableStore", "SqliteStore", "PostgresStore"})
"""Classes that show every verb of the public contract. They may be wide if every method only delegates."""
PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})
"""Foreign bases that bring no attributes."""
FIELD_BASES = frozenset({"Struct", "Protocol", "NamedTuple", "TypedDict"})
"""Foreign bases that make an annotation a field."""


def module_lines(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        budget = CORE_MODULE_LINES if module.package == "core" else MODULE_LINES
        count = len(module.lines)
        if count > budget:
            yield Finding(
                module.path,
                count,
                f"{module.shown}:{count}",
                f"the module has {count} lines, the budget is {budget}: split it by idea, not by length",
            )


def function_lines(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        for function in module.functions:
            count = (function.node.end_lineno or 0) - function.node.lineno + 1
            if count > FUNCTION_LINES:
                yield Finding(
                    function.name,
                    count,
                    module.where(function.node),
                    f"{function.name} has {count} lines, the budget is {FUNCTION_LINES}: move one step of it out",
                )


def class_methods(sources: Sources) -> Iterator[Finding]:
    for found in sources.all_classes:
        if is_delegating_facade(found.node):
            continue
        own = {method.name for method in methods(found.node) if not is_empty_hook(method)}
        bases = sources.bases(found)[0]
        inherited = {method.name for each in bases for method in methods(each.node) if not is_empty_hook(method)}
        count = len(own | inherited)
        if count > CLASS_METHODS:
            yield Finding(
                found.node.name,
                count,
                found.module.where(found.node),
                f"{found.node.name} has {count} methods with those of its bases, the budget is {CLASS_METHODS}: "
                "compose smaller classes",
            )


def parameters(sources: Sources) -> Iterator[Finding]:
    for module in sources.modules:
        for function in module.functions:
            if function.owner is not None and is_delegating_facade(function.owner):
                continue
            if _is_declaration(module, function):
                continue
            count = count_parameters(function.node, function.owner is not None)
            if count > PARAMETERS:
                yield Finding(
                    function.name,
                    count,
                    module.where(function.node),
                    f"{function.name} has {count} parameters, the budget is {PARAMETERS}: pass one frozen value",
                )


def _is_declaration(module: Module, function: Function) -> bool:
    """Whether typer makes command-line options out of the parameters."""
    is_command = module.path.startswith("cli/commands/") and function.name.endswith("_command")
    return is_command or any(name.endswith((".command", ".callback")) for name in function.decorators)


def mixins(sources: Sources) -> Iterator[Finding]:
    """Find base classes that use attributes which neither they nor their own bases set."""
    bases = {id(base.node): base for found in sources.all_classes for base in sources.bases(found)[0]}
    for found in bases.values():
        ours, foreign = sources.bases(found)
        last_names = {name.split(".")[-1] for name in foreign}
        if last_names - PLAIN_BASES - FIELD_BASES:
            continue  # a foreign base may define them
        lineage = [found, *ours]
        known = set().union(*(_defined(each, bool(last_names & FIELD_BASES)) for each in lineage))
        missing = sorted(_read(found.node) - known)
        if missing:
            yield Finding(
                found.node.name,
                len(missing),
                found.module.where(found.node),
                f"{found.node.name} is a base class and uses {', '.join(missing)}, which it does not set: "
                "make it a collaborator that is given what it needs",
            )


def is_delegating_facade(node: ast.ClassDef) -> bool:
    """Return whether this is a facade of the contract and each method but `__init__` is a single statement."""
    return node.name in FACADES and all(
        method.name == "__init__" or _is_one_statement(method) for method in methods(node)
    )


def is_empty_hook(node: FunctionNode) -> bool:
    """Return whether this is a documented default that does nothing: subclasses override what they need of them."""
    if ast.get_docstring(node, clean=False) is None:
        return False
    body = node.body[1:]
    if not body:
        return True
    value = body[0].value if isinstance(body[0], ast.Return) else ...
    is_plain = value is None or isinstance(value, ast.Constant | ast.Name | ast.Attribute)
    return len(body) == 1 and (is_plain or (isinstance(value, ast.Tuple) and not value.elts))


def count_parameters(node: FunctionNode, is_method: bool) -> int:
    """Count named parameters, keyword-only ones too, without `self` and `cls`."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if is_method and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    return len(names) + len(node.args.kwonlyargs)


def _is_one_statement(node: FunctionNode) -> bool:
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    simple = (ast.Return, ast.Expr, ast.Assign, ast.Delete, ast.Raise, ast.Pass)
    return len(body) <= 1 and all(isinstance(each, simple) for each in body)


def _defined(found: Class, annotations_are_fields: bool) -> set[str]:
    names = {method.name for method in methods(found.node)}
    is_dataclass = any(dotted(each).endswith("dataclass") for each in found.node.decorator_list)
    for statement in found.node.body:
        if isinstance(statement, ast.Assign):
            names |= {dotted(target) for target in statement.targets}
        elif isinstance(statement, ast.AnnAssign) and (
            statement.value is not None or annotations_are_fields or is_dataclass
        ):
            names.add(dotted(statement.target))
        elif isinstance(statement, ast.ClassDef):
            names.add(statement.name)
    return names | {each.attr for each in _of_self(found.node) if isinstance(each.ctx, ast.Store)}


def _read(node: ast.ClassDef) -> set[str]:
    return {each.attr for each in _of_self(node) if isinstance(each.ctx, ast.Load) and not each.attr.startswith("__")}


def _of_self(node: ast.ClassDef) -> Iterator[ast.Attribute]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each
