"""opencode: its logins in `auth.json`, and keys in `opencode.json`.

A model is named `provider/model`. Without a model any provider may be used, so any key is a finding.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.agents.surroundings import BillingFinding, Surroundings, UnreadableFile, load, parse_json
from paceline.detect.json_objects import member

_CONTENT = "OPENCODE_CONFIG_CONTENT"
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""The headers in which providers take a key. Others, such as a name of the caller, bill nothing."""


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of opencode would bill a key."""
    found: list[BillingFinding] = []
    configs = [*load(_files(around), parse_json, found)]
    if around.env.get(_CONTENT):
        try:
            configs.append((_CONTENT, parse_json(around.env[_CONTENT])))
        except UnreadableFile as error:
            found.append(BillingFinding(file=_CONTENT, key="", meaning=str(error), holds=error.holds))
    provider = _provider(around, configs)
    for file, config in configs:
        found += _in_config(file, member(config, "provider"), provider, around)
    data = around.folder("XDG_DATA_HOME", ".local", "share")
    for file, logins in load([data / "opencode" / "auth.json"], parse_json, found):
        found += _in_logins(file, logins, provider, around)
    return found


def _files(around: Surroundings) -> list[Path]:
    names = ("config.json", "opencode.json", "opencode.jsonc")
    own = around.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    folders = [around.system("etc", "opencode"), own]
    if around.env.get("OPENCODE_CONFIG_DIR"):
        folders.append(around.folder("OPENCODE_CONFIG_DIR"))
    for above in reversed(around.upward()):
        folders += [above, above / ".opencode"]
    files = [folder / name for folder in folders for name in names if folder == own or name != "config.json"]
    return [*files, around.folder("OPENCODE_CONFIG")] if around.env.get("OPENCODE_CONFIG") else files


def _provider(around: Surroundings, configs: list[tuple[str, object]]) -> str | None:
    """Return the provider of the model that would be used, if it is known."""
    named = around.model or next(iter(around.options("--model", "-m")), None)
    for _, config in configs:
        default = member(config, "model")
        named = named or (default if isinstance(default, str) else None)
    return named.partition("/")[0] if named and "/" in named else None


def _in_config(file: str, providers: object, used: str | None, around: Surroundings) -> list[BillingFinding]:
    found = []
    for name, entry in providers.items() if isinstance(providers, Mapping) else ():
        if used not in (None, name):
            continue
        for key, value in _keys(entry):
            if around.is_foreign(value):
                found.append(BillingFinding(file=file, key=f"provider.{name}.{key}", meaning="would bill this key"))
    return found


def _keys(entry: object) -> Iterator[tuple[str, object]]:
    """Yield where the entry of a provider can have a key, and what stands there."""
    yield "options.apiKey", member(entry, "options", "apiKey")
    models = member(entry, "models")
    headers = {"options.headers": member(entry, "options", "headers")}
    if isinstance(models, Mapping):
        headers |= {f"models.{name}.headers": member(model, "headers") for name, model in models.items()}
    for place, values in headers.items():
        for header, value in values.items() if isinstance(values, Mapping) else ():
            if str(header).lower() in _KEY_HEADERS and isinstance(value, str):
                yield f"{place}.{header}", value.removeprefix("Bearer ")


def _in_logins(file: str, logins: object, used: str | None, around: Surroundings) -> list[BillingFinding]:
    found = []
    for name, login in logins.items() if isinstance(logins, Mapping) else ():
        is_key = member(login, "type") in ("api", "wellknown")
        secret = member(login, "key") or member(login, "token")
        if used in (None, name) and is_key and around.is_foreign(secret):
            found.append(BillingFinding(file=file, key=str(name), meaning="is an API key, which would be billed"))
    return found
