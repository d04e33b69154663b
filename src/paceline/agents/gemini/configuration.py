"""Gemini CLI: the method of its login in `settings.json`, and keys in an `.env` file."""

from pathlib import Path

from paceline.agents.surroundings import SET_PERMISSIONS, Surroundings, is_on, parse_dotenv, parse_json, read_content
from paceline.detect.json_objects import member

_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_SWITCH = "GOOGLE_GENAI_USE_VERTEXAI"
_BILLED_METHODS = frozenset({"gemini-api-key", "vertex-ai", "gateway"})
_ADDRESSES = ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of Gemini CLI would bill a key."""
    method, file = chosen_method(list(around.load(_settings_files(around), parse_json)))
    if method in _BILLED_METHODS and not around.is_metered:
        report_method(around, file, str(method))
    for dotenv, variables in around.load(first_dotenv(around, ".gemini"), parse_dotenv):
        if method is None or method in _BILLED_METHODS:
            _in_dotenv(dotenv, variables, around)


def _settings_files(around: Surroundings) -> list[Path]:
    """Return the files of settings, the strongest last."""
    system = around.system("etc", "gemini-cli")
    return [
        around.folder("GEMINI_CLI_SYSTEM_DEFAULTS_PATH", system / "system-defaults.json"),
        around.folder("GEMINI_CLI_HOME") / ".gemini" / "settings.json",
        Path(around.cwd, ".gemini", "settings.json"),
        around.folder("GEMINI_CLI_SYSTEM_SETTINGS_PATH", system / "settings.json"),
    ]


def chosen_method(files: list[tuple[str, object]]) -> tuple[object, str]:
    """Return the method of login that the settings choose, and the file that chooses it."""
    method: object = None
    place = ""
    for file, settings in files:
        named = member(settings, "security", "auth", "selectedType") or member(settings, "selectedAuthType")
        if named:
            method, place = named, file
    return method, place


def report_method(around: Surroundings, file: str, method: str) -> None:
    meaning = f"chooses {method!r}, which is billed with a key instead of a login"
    around.report(file, "security.auth.selectedType", meaning)


def first_dotenv(around: Surroundings, folder: str) -> list[Path]:
    """Return the `.env` file that the CLI loads: the first one upward, else that of the home folder."""
    places = [place for above in (*around.upward(), around.home) for place in (above / folder / ".env", above / ".env")]
    return [next((place for place in places if place.exists()), places[-1])]


def _in_dotenv(file: str, variables: object, around: Surroundings) -> None:
    around.report_keys(file, variables, _KEYS)
    if is_on(member(variables, _SWITCH)):
        around.report(file, _SWITCH, "would bill a cloud account")
    for name in _ADDRESSES:
        if is_on(member(variables, name)) and not around.is_metered:
            around.report(file, name, "sends the calls to another address")


def unattended_problem(around: Surroundings, account: str, program: str = "gemini") -> tuple[str, str] | None:
    """Return why an unattended session could change no file, and the fix. None if it could."""
    settings = read_content(around.home / f".{program}" / "settings.json", parse_json)
    if member(settings, "general", "defaultApprovalMode") or member(settings, "tools", "approvalMode"):
        return None
    return f"{program} denies every change in an unattended run on {account}", SET_PERMISSIONS
