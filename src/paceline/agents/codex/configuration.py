"""Codex: its login in `auth.json`, and the model provider that its configuration chooses.

Its configuration is `/etc/codex`, `$CODEX_HOME/config.toml`, the profile, and `-c key=value` on the command line.
"""

import re
from collections.abc import Mapping

from paceline.agents.surroundings import (
    SET_PERMISSIONS,
    Surroundings,
    UnreadableFile,
    parse_dotenv,
    parse_json,
    parse_toml,
    read_content,
)
from paceline.detect.json_objects import member

_PLAN_PROVIDERS = frozenset({"openai"})
_LOCAL_PROVIDERS = frozenset({"ollama", "lmstudio", "oss"})
_PROVIDER_KEYS = ("env_key", "experimental_bearer_token", "auth", "http_headers", "env_http_headers")
"""Entries of a model provider that make its calls carry a key."""
_CHOSEN = re.compile(r"""\s*(model_provider|profile|preferred_auth_method|forced_login_method)\s*=\s*["']?([\w.-]+)""")
_DOTENV_KEYS = ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY")
_KEY_MODES = frozenset({"apikey", "api_key", "bedrockApiKey", "bedrock_api_key"})


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of Codex would bill a key."""
    own = around.folder("CODEX_HOME", ".codex")
    configs = [around.system("etc", "codex", "config.toml"), own / "config.toml"]
    configs += [own / f"{name}.config.toml" for name in _profiles(around)]
    configs += [folder / ".codex" / "config.toml" for folder in reversed(around.upward())]
    configs.append(around.system("etc", "codex", "managed_config.toml"))
    merged: dict[str, object] = {}
    places: dict[str, str] = {}
    for file, config in around.load(configs, _parse_config):
        if isinstance(config, Mapping):
            merged |= _merge(merged, config)
            places |= dict.fromkeys(config, file)
    _in_config(merged, places, around)
    if not any(finding.key.startswith("model_provider") for finding in around.found):
        for file, login in around.load([own / "auth.json"], parse_json):
            _in_login(file, login, around)
        for file, variables in around.load([own / ".env"], parse_dotenv):
            around.report_keys(file, variables, _DOTENV_KEYS, meaning="would reach Codex as a key")


def _parse_config(text: str) -> object:
    """Parse the configuration. Codex reads newer TOML than Python; a file that names no payer need not be read."""
    try:
        return parse_toml(text)
    except UnreadableFile:
        if any(word in text for word in ("model_provider", "forced_login_method", "preferred_auth_method")):
            raise
        return {}


def _profiles(around: Surroundings) -> list[str]:
    return [name for name in around.options("--profile", "-p") if re.fullmatch(r"[\w-]+", name)]


def _merge(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return two layers as one: tables are merged, all other values are replaced."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        is_table = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[name] = _merge(under, value) if is_table else value  # type: ignore[arg-type]
    return merged


def _in_config(config: dict[str, object], places: Mapping[str, str], around: Surroundings) -> None:
    chosen: dict[str, object] = {name: config.get(name) for name in ("model_provider", "profile")}
    matches = [match for each in around.options("-c", "--config") if (match := _CHOSEN.match(each))]
    given: dict[str, str] = {match[1]: match[2] for match in matches}
    profile = next(iter(_profiles(around)), None) or given.get("profile") or chosen["profile"]
    in_profile = member(config, "profiles", str(profile), "model_provider") if profile else None
    provider = given.get("model_provider") or in_profile or chosen["model_provider"]
    file = (
        "the command line"
        if "model_provider" in given
        else places.get("profiles" if in_profile else "model_provider", "")
    )
    _forced_login(config | given, places, around)
    if provider is None or "paceline" in given.values() or provider in _LOCAL_PROVIDERS:
        return
    entry = member(config, "model_providers", str(provider))
    if provider in _PLAN_PROVIDERS and not isinstance(entry, Mapping):
        return
    has_key = not isinstance(entry, Mapping) or any(entry.get(name) for name in _PROVIDER_KEYS)
    is_own = around.own_key is not None and around.env.get(str(member(entry, "env_key"))) == around.own_key
    if has_key and not is_own:
        meaning = f"chooses {provider!r}, which is billed with a key of its own instead of the login"
        around.report(file, "model_provider", meaning)


def _forced_login(config: Mapping[str, object], places: Mapping[str, str], around: Surroundings) -> None:
    for name in ("preferred_auth_method", "forced_login_method"):
        if config.get(name) in ("apikey", "api") and not around.is_metered:
            around.report(places.get(name, "the command line"), name, "makes Codex use an API key")


def _in_login(file: str, login: object, around: Surroundings) -> None:
    """Read `auth.json`. Without a mode, a key in it is the login."""
    mode = member(login, "auth_mode")
    key = member(login, "OPENAI_API_KEY")
    is_key = mode in _KEY_MODES or (mode is None and bool(key))
    if is_key and "CODEX_API_KEY" not in around.env and (key is None or around.is_foreign(key)):
        around.report(file, "OPENAI_API_KEY" if key else "auth_mode", "is an API key, which would be billed")


def unattended_problem(around: Surroundings, account: str) -> tuple[str, str] | None:
    """Return why an unattended session could change no file, and the fix. None if it could."""
    if member(read_content(around.folder("CODEX_HOME", ".codex") / "config.toml", parse_toml), "sandbox_mode"):
        return None
    return f"codex runs in a read-only sandbox on {account}: it can change no file", SET_PERMISSIONS
