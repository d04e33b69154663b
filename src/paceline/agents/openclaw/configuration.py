"""OpenClaw: keys in `openclaw.json` and in the `.env` files that it reads.

A model is named `provider/model`. Without a model any provider may be used, so any key is a finding. Its own logins are
in a database that only OpenClaw reads.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.agents.surroundings import BillingFinding, Surroundings, load, parse_dotenv, parse_json
from paceline.detect.json_objects import member

_KEY_NAME = re.compile(r"[A-Z0-9_]+_API_KEYS?")
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""The headers in which providers take a key. Others, such as a name of the caller, bill nothing."""
_REFERENCE = re.compile(r"\$\{\w+\}|secretref[\w:-]*")
"""A value that names a variable. Whether a session gets that variable is decided with its environment."""
# Strings and comments stay together, so that what looks like a key inside of them is left alone.
_JSON5 = re.compile(
    r'(?P<string>"(?:\\.|[^"\\])*")|\'(?P<single>(?:\\.|[^\'\\])*)\'|(?P<comment>//[^\n]*|/\*.*?\*/)'
    r"|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)",
    re.S,
)


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of OpenClaw would bill a key."""
    found: list[BillingFinding] = []
    state = _state_folder(around)
    configs = list(load(_config_files(around, state), _parse_json5, found))
    provider = _provider(around, configs)
    for file, config in configs:
        found += _in_providers(file, member(config, "models", "providers"), provider, around)
        found += _in_variables(file, "env.", member(config, "env"), around)
        found += _in_variables(file, "env.vars.", member(config, "env", "vars"), around)
    for file, variables in load([Path(around.cwd, ".env"), state / ".env"], parse_dotenv, found):
        found += _in_variables(file, "", variables, around)
    return found


def _state_folder(around: Surroundings) -> Path:
    if around.env.get("OPENCLAW_STATE_DIR"):
        return around.folder("OPENCLAW_STATE_DIR")
    return around.folder("OPENCLAW_HOME") / ".openclaw"


def _config_files(around: Surroundings, state: Path) -> list[Path]:
    named = around.options("--config")
    if named:
        return [Path(around.cwd, named[0])]
    if "--isolated" in around.argv or "--auth-env-only" in around.argv:
        return []
    if around.env.get("OPENCLAW_CONFIG_PATH"):
        return [around.folder("OPENCLAW_CONFIG_PATH")]
    return [state / "openclaw.json"]


def _parse_json5(text: str) -> object:
    """Parse JSON5: names without quotes, and strings in single ones."""
    return parse_json(_JSON5.sub(_as_json, text))


def _as_json(found: re.Match[str]) -> str:
    if found["name"] is not None:
        return f'"{found["name"]}"'
    if found["single"] is not None:
        return json.dumps(found["single"].replace("\\'", "'"))
    return found["string"] or ""


def _provider(around: Surroundings, configs: list[tuple[str, object]]) -> str | None:
    """Return the provider of the model that would be used, if it is known."""
    named = around.model or next(iter(around.options("--model")), None)
    for _, config in configs:
        default = member(config, "agents", "defaults", "model")
        default = member(default, "primary") if isinstance(default, Mapping) else default
        named = named or (default if isinstance(default, str) else None)
    return named.partition("/")[0] if named and "/" in named else None


def _in_providers(file: str, providers: object, used: str | None, around: Surroundings) -> list[BillingFinding]:
    found = []
    for name, entry in providers.items() if isinstance(providers, Mapping) else ():
        if used not in (None, name):
            continue
        for key, value in _keys(entry):
            if around.is_foreign(value) and not _REFERENCE.fullmatch(str(value).strip()):
                where = f"models.providers.{name}.{key}"
                found.append(BillingFinding(file=file, key=where, meaning="would bill this key"))
    return found


def _keys(entry: object) -> Iterator[tuple[str, object]]:
    """Yield where the entry of a provider can have a key, and what stands there."""
    yield "apiKey", member(entry, "apiKey")
    headers = member(entry, "headers")
    for header, value in headers.items() if isinstance(headers, Mapping) else ():
        if str(header).lower() in _KEY_HEADERS and isinstance(value, str):
            yield f"headers.{header}", value.removeprefix("Bearer ")


def _in_variables(file: str, prefix: str, variables: object, around: Surroundings) -> list[BillingFinding]:
    return [
        BillingFinding(file=file, key=f"{prefix}{name}", meaning="would bill this key")
        for name, value in (variables.items() if isinstance(variables, Mapping) else ())
        if _KEY_NAME.fullmatch(str(name)) and around.is_foreign(value)
    ]
