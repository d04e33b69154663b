"""aider: keys in `.env` files and in `.aider.conf.yml`. It has no login: whatever it finds is billed."""

import re
from pathlib import Path

from paceline.agents.surroundings import BillingFinding, Surroundings, load, parse_dotenv

_DOTENV_KEY = re.compile(r"[A-Z0-9_]+_API_KEY")
_YAML_KEY = re.compile(r"^[ \t]*-?[ \t]*((?:[\w-]+-)?api-key)[ \t]*:[ \t]*(\S.*)?$", re.M)


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of aider would bill a key."""
    found: list[BillingFinding] = []
    folders = list(dict.fromkeys([around.home, _repository(around), Path(around.cwd)]))
    dotenvs = [folder / ".env" for folder in folders] + [around.home / ".aider" / "oauth-keys.env"]
    for file, variables in load(dotenvs, parse_dotenv, found):
        assert isinstance(variables, dict)
        found += around.keys_in(file, variables, filter(_DOTENV_KEY.fullmatch, variables))
    for file, names in load([folder / ".aider.conf.yml" for folder in folders], _yaml_keys, found):
        assert isinstance(names, dict)
        found += around.keys_in(file, names, names)
    return found


def _repository(around: Surroundings) -> Path:
    """Return the folder of the git repository, which aider searches too."""
    return next((folder for folder in around.upward() if (folder / ".git").exists()), Path(around.cwd))


def _yaml_keys(text: str) -> dict[str, str]:
    """Return the keys of the configuration. The list form `api-key:` without a value has its keys below it."""
    return {name: value.strip("'\" ") or name for name, value in _YAML_KEY.findall(text)}
