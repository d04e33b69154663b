#!/usr/bin/env python3
"""Writes docs/reference/http-api.md from the OpenAPI document and docs/reference/cli.md from the command tree.

python scripts/make_reference.py [FOLDER]
"""

import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import typer

from paceline.api.app import ROUTES, build_document
from paceline.cli.main import COMMANDS, CommandModules

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- made by scripts/make_reference.py -->\n"
REF = "#/components/schemas/"


def http_api() -> str:
    """Return the page of all routes and types."""
    document = build_document(ROUTES)
    lines = ["# Routes and types of the HTTP API", "", MADE]
    lines += ["[The HTTP API](../http-api.md) explains access, errors and what the fields mean.", ""]
    group = ""
    for path, methods in document["paths"].items():
        first = "/" + "/".join(path.split("/")[1 : 3 if path.startswith(("/v1/", "/concurrency/")) else 2])
        if first != group:
            group = first
            lines += [f"## {group}", ""]
        for method, operation in methods.items():
            lines += [*_operation(method, path, operation), ""]
    lines += ["## Types", "", "A type with `?` may be null.", ""]
    schemas: dict[str, Any] = document["components"]["schemas"]
    explained = _explained()
    sent = _sent(document)
    for name in sorted(schemas):
        lines += [*_type(name, schemas[name], explained.get(name, ""), is_sent=name in sent), ""]
    return "\n".join(lines).rstrip() + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}"
    yield ""
    yield f"{operation['summary']}."
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path":
            default = parameter["schema"].get("default")
            shown = "" if default in (None, "") else f" Default: `{default}`."
            kind = _shown(parameter["schema"])
            yield f"- {parameter['in']} `{parameter['name']}` ({kind}): {parameter.get('description', '')}{shown}"
    if body := operation.get("requestBody"):
        yield f"- body: {_content(body)}"
    for status, answer in operation["responses"].items():
        if status < "300":
            yield f"- {status}: {_content(answer)}"
    errors = sorted(status for status in operation["responses"] if status >= "300")
    yield f"- errors: {', '.join(errors)}"


def _content(body: dict[str, Any]) -> str:
    kinds = [_shown(each.get("schema", {})) or kind for kind, each in body.get("content", {}).items()]
    return ", ".join(kinds) or "nothing"


def _sent(document: dict[str, Any]) -> set[str]:
    """Return the types that clients send: only for these it matters which fields are required."""
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    bodies = [operation["requestBody"]["content"].values() for operation in operations if "requestBody" in operation]
    return {each["schema"].get("$ref", "").removeprefix(REF) for body in bodies for each in body}


def _type(name: str, schema: dict[str, Any], text: str, *, is_sent: bool) -> Iterator[str]:
    yield f"### {name}"
    if text:
        yield ""
        yield text
    yield ""
    required = set(schema.get("required", ())) if is_sent else set()
    for field, kind in schema.get("properties", {}).items():
        mark = " (required)" if field in required else ""
        yield f"- `{field}`{mark}: {_shown(kind)}"
    if "properties" not in schema:
        yield _shown(schema)


def _shown(schema: dict[str, Any]) -> str:
    """Return a schema in a few words: a link to its type, or what it holds."""
    if ref := schema.get("$ref"):
        name = ref.removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    if options := schema.get("oneOf") or schema.get("anyOf"):
        names = [_shown(each) for each in options if each.get("type") != "null"]
        return " or ".join(names) + ("?" if len(names) < len(options) else "")
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values if value is not None) + ("?" if None in values else "")
    kinds = schema.get("type", "")
    named = kinds if isinstance(kinds, list) else [kinds]
    if "array" in named:
        return f"list of {_shown(schema['items'])}" if schema.get("items") else "list"
    if isinstance(held := schema.get("additionalProperties"), dict) and held:
        return f"table of {_shown(held)}"
    return " or ".join(kind for kind in named if kind != "null") + ("?" if "null" in named else "")


def _explained() -> dict[str, str]:
    """Return the docstrings of the types that are answered, by name, where a name is that of one type alone."""
    found: dict[str, set[str]] = {}
    waiting: list[Any] = [msgspec.Struct]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            found.setdefault(kind.__name__, set()).add(cleandoc(kind.__doc__ or ""))
            waiting.append(kind)
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def command_line() -> str:
    """Return the page of all commands with their arguments and options."""
    modules = CommandModules()
    lines = ["# Commands and options", "", MADE, "[The command line](../cli.md) has the exit codes and examples.", ""]
    for panel, names in COMMANDS.items():
        lines += [f"## {panel}", ""]
        for name in names:
            command = modules[name]
            for full, each in _commands(name, command):
                lines += [*_command(full, each), ""]
    return "\n".join(lines).rstrip() + "\n"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner or getattr(command, "invoke_without_command", False):
        yield name, command
    for part, each in inner.items():
        yield f"{name} {part}", each


def _command(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"paceline {name}")
    yield f"### paceline {name}"
    yield ""
    yield f"    {command.get_usage(context).removeprefix('Usage: ')}"
    yield ""
    yield re.sub(r"\[/?bold\]", "`", cleandoc(command.help or ""))
    yield ""
    for param in command.params:
        if not param.hidden and (record := param.get_help_record(context)):
            option, text = record
            named = re.sub(r" <[\w\[\]]+>", "", option)
            yield f"- `{named}`: {text}"


PAGES = {"http-api.md": http_api, "cli.md": command_line}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
        print(f"wrote {name}")
