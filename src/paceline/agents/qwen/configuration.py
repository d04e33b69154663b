"""Qwen Code: the method of its login in `settings.json`, keys in the settings and in `.env` files."""

from pathlib import Path

from paceline.agents.gemini import configuration as gemini
from paceline.agents.gemini.configuration import chosen_method, first_dotenv, report_method
from paceline.agents.surroundings import Surroundings, parse_dotenv, parse_json
from paceline.detect.json_objects import member

_KEYS = ("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
_BILLED_METHODS = frozenset({"openai", "gemini", "anthropic", "vertex-ai", "azure-openai"})
_LOGIN = "qwen-oauth"


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of Qwen Code would bill a key."""
    files = list(around.load(_settings_files(around), parse_json))
    method, file = chosen_method(files)
    method = next(iter(around.options("--auth-type")), method)
    if method == _LOGIN:
        around.found[:] = [finding for finding in around.found if not finding.holds]
        return
    if method in _BILLED_METHODS and file and not around.is_metered:
        report_method(around, file, str(method))
    for settings_file, settings in files:
        around.report_keys(settings_file, member(settings, "env"), _KEYS, prefix="env.")
        around.report_keys(settings_file, member(settings, "security", "auth"), ["apiKey"], prefix="security.auth.")
    home = [around.folder("QWEN_HOME", ".qwen") / ".env", around.home / ".qwen" / ".env", around.home / ".env"]
    for dotenv, variables in around.load([*first_dotenv(around, ".qwen"), *home], parse_dotenv):
        around.report_keys(dotenv, variables, _KEYS)


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
