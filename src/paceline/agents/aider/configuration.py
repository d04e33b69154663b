"""aider: keys in `.env` files and in `.aider.conf.yml`. It has no login: whatever it finds is billed."""

import re
from pathlib import Path

from paceline.agents.surroundings import Surroundings, parse_dotenv

_DOTENV_KEY = re.compile(r"[A-Z0-9_]+_API_KEY")
_KEY_NAME = re.compile(r"(?:[\w-]+-)?api-key")
_YAML_KEY = re.compile(rf"^[ \t]*-?[ \t]*({_KEY_NAME.pattern})[ \t]*:[ \t]*(\S.*)?$", re.M)


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of aider would bill a key."""
    folders = [around.home, around.repository, Path(around.cwd)]
    dotenvs = [folder / ".env" for folder in folders] + [around.home / ".aider" / "oauth-keys.env"]
    for file, variables in around.load(dotenvs, parse_dotenv):
        around.report_keys(file, variables, _DOTENV_KEY)
    for file, names in around.load([folder / ".aider.conf.yml" for folder in folders], _yaml_keys):
        around.report_keys(file, names, _KEY_NAME)


def _yaml_keys(text: str) -> dict[str, str]:
    """Return the keys of the configuration. The list form `api-key:` without a value has its keys below it."""
    return {name: value.strip("'\" ") or name for name, value in _YAML_KEY.findall(text)}
