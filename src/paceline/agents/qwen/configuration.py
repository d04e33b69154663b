"""Qwen Code: the method of its login in `settings.json`, keys in the settings and in `.env` files."""

from pathlib import Path

from paceline.agents.gemini import configuration as gemini
from paceline.agents.gemini.configuration import billed_method, chosen_method, first_dotenv
from paceline.agents.surroundings import BillingFinding, Surroundings, load, parse_dotenv, parse_json
from paceline.detect.json_objects import member

_KEYS = ("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
_BILLED_METHODS = frozenset({"openai", "gemini", "anthropic", "vertex-ai", "azure-openai"})
_LOGIN = "qwen-oauth"


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of Qwen Code would bill a key."""
    found: list[BillingFinding] = []
    files = _settings_files(around)
    method, file = chosen_method(files, found)
    method = next(iter(around.options("--auth-type")), method)
    if method == _LOGIN:
        return [finding for finding in found if not finding.holds]
    if method in _BILLED_METHODS and file and not around.is_metered:
        found.append(billed_method(file, str(method)))
    for settings_file, settings in load(files, parse_json, []):
        found += around.keys_in(settings_file, member(settings, "env"), _KEYS, prefix="env.")
        if around.is_foreign(member(settings, "security", "auth", "apiKey")):
            found.append(BillingFinding(file=settings_file, key="security.auth.apiKey", meaning="would bill this key"))
    home = [around.folder("QWEN_HOME", ".qwen") / ".env", around.home / ".qwen" / ".env", around.home / ".env"]
    for dotenv, variables in load(list(dict.fromkeys([*first_dotenv(around, ".qwen"), *home])), parse_dotenv, found):
        found += around.keys_in(dotenv, variables, _KEYS)
    return found


def _settings_files(around: Surroundings) -> list[Path]:
    """Return the files of settings, the strongest last."""
    system = around.system("etc", "qwen-code")
    return [
        system / "system-defaults.json",
        around.folder("QWEN_HOME", ".qwen") / "settings.json",
        Path(around.cwd, ".qwen", "settings.json"),
        system / "settings.json",
    ]


def unattended_problem(around: Surroundings, account: str) -> tuple[str, str] | None:
    """Return why an unattended session could change no file, and the fix. None if it could."""
    return gemini.unattended_problem(around, account, "qwen")
