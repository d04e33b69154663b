"""opencode: its logins in `auth.json`, and keys in `opencode.json`.

A model is named `provider/model`. Without a model any provider may be used, so any key is a finding.
"""

from collections.abc import Iterator
from pathlib import Path

from paceline.agents.surroundings import BillingFinding, Surroundings, UnreadableFile, keys_in_headers, load, parse_json
from paceline.detect.json_objects import items_of, member

_CONTENT = "OPENCODE_CONFIG_CONTENT"


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of opencode would bill a key."""
    found: list[BillingFinding] = []
    configs = [*load(_files(around), parse_json, found)]
    if around.env.get(_CONTENT):
        try:
            configs.append((_CONTENT, parse_json(around.env[_CONTENT])))
        except UnreadableFile as error:
            found.append(BillingFinding(file=_CONTENT, key="", meaning=str(error), holds=error.holds))
    provider = around.provider(("--model", "-m"), [member(config, "model") for _, config in configs])
    for file, config in configs:
        found += around.keys_of_providers(file, "provider", member(config, "provider"), _keys, provider)
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


def _keys(entry: object) -> Iterator[tuple[str, object]]:
    yield "options.apiKey", member(entry, "options", "apiKey")
    yield from keys_in_headers("options.headers", member(entry, "options", "headers"))
    for name, model in items_of(member(entry, "models")):
        yield from keys_in_headers(f"models.{name}.headers", member(model, "headers"))


def _in_logins(file: str, logins: object, used: str | None, around: Surroundings) -> list[BillingFinding]:
    found = []
    for name, login in items_of(logins):
        is_key = member(login, "type") in ("api", "wellknown")
        secret = member(login, "key") or member(login, "token")
        if used in (None, name) and is_key and around.is_foreign(secret):
            found.append(BillingFinding(file=file, key=name, meaning="is an API key, which would be billed"))
    return found
