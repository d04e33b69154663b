"""OpenClaw: keys in `openclaw.json` and in the `.env` files that it reads.

A model is named `provider/model`. Without a model any provider may be used, so any key is a finding. Its own logins are
in a database that only OpenClaw reads.
"""

import json
import re
from pathlib import Path

from paceline.agents.surroundings import Surroundings, keys_in_headers, parse_dotenv, parse_json
from paceline.detect.json_objects import member

_KEY_NAME = re.compile(r"[A-Z0-9_]+_API_KEYS?")
_REFERENCE = re.compile(r"\$\{\w+\}|secretref[\w:-]*")
"""A value that names a variable. Whether a session gets that variable is decided with its environment."""
# Strings and comments stay together, so that what looks like a key inside of them is left alone.
_JSON5 = re.compile(
    r'(?P<string>"(?:\\.|[^"\\])*")|\'(?P<single>(?:\\.|[^\'\\])*)\'|(?P<comment>//[^\n]*|/\*.*?\*/)'
    r"|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)",
    re.S,
)


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of OpenClaw would bill a key."""
    state = _state_folder(around)
    configs = list(around.load(_config_files(around, state), _parse_json5))
    provider = around.provider(("--model",), [_default_model(config) for _, config in configs])
    for file, config in configs:
        providers = member(config, "models", "providers")
        around.report_keys_of_providers(file, "models.providers", providers, _keys, provider)
        around.report_keys(file, member(config, "env"), _KEY_NAME, prefix="env.")
        around.report_keys(file, member(config, "env", "vars"), _KEY_NAME, prefix="env.vars.")
    for file, variables in around.load([Path(around.cwd, ".env"), state / ".env"], parse_dotenv):
        around.report_keys(file, variables, _KEY_NAME)


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


def _default_model(config: object) -> object:
    default = member(config, "agents", "defaults", "model")
    return member(default, "primary") if isinstance(default, dict) else default


def _keys(entry: object) -> list[tuple[str, object]]:
    places = [("apiKey", member(entry, "apiKey")), *keys_in_headers("headers", member(entry, "headers"))]
    return [(place, value) for place, value in places if not _REFERENCE.fullmatch(str(value).strip())]
