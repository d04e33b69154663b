"""opencode: its logins in `auth.json`, and keys in `opencode.json`.

A model is named `provider/model`. Without a model any provider may be used, so any key is a finding.
"""

from collections.abc import Iterator
from pathlib import Path

from paceline.agents.surroundings import Surroundings, keys_in_headers, parse_json
from paceline.detect.json_objects import items_of, member

_CONTENT = "OPENCODE_CONFIG_CONTENT"


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of opencode would bill a key."""
    configs = [*around.load(_files(around), parse_json)]
    configs += around.parsed(_CONTENT, around.env.get(_CONTENT) or None, parse_json)
    provider = around.provider(("--model", "-m"), [member(config, "model") for _, config in configs])
    for file, config in configs:
        around.report_keys_of_providers(file, "provider", member(config, "provider"), _keys, provider)
    data = around.folder("XDG_DATA_HOME", ".local", "share")
    for file, logins in around.load([data / "opencode" / "auth.json"], parse_json):
        for name, login in items_of(logins):
            is_key = member(login, "type") in ("api", "wellknown")
            secret = member(login, "key") or member(login, "token")
            if provider in (None, name) and is_key and around.is_foreign(secret):
                around.report(file, name, "is an API key, which would be billed")


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
