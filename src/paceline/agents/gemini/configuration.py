"""Gemini CLI: the method of its login in `settings.json`, and keys in an `.env` file."""

from pathlib import Path

from paceline.agents.surroundings import (
    SET_PERMISSIONS,
    BillingFinding,
    Surroundings,
    is_on,
    load,
    parse_dotenv,
    parse_json,
    read_content,
)
from paceline.detect.json_objects import member

_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_SWITCH = "GOOGLE_GENAI_USE_VERTEXAI"
_BILLED_METHODS = frozenset({"gemini-api-key", "vertex-ai", "gateway"})
_ADDRESSES = ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")


def inspect(around: Surroundings) -> list[BillingFinding]:
    """Return what in the configuration of Gemini CLI would bill a key."""
    found: list[BillingFinding] = []
    method, file = chosen_method(_settings_files(around), found)
    if method in _BILLED_METHODS and not around.is_metered:
        found.append(billed_method(file, str(method)))
    for dotenv, variables in load(first_dotenv(around, ".gemini"), parse_dotenv, found):
        found += [each for each in in_dotenv(dotenv, variables, around) if method is None or method in _BILLED_METHODS]
    return found


def _settings_files(around: Surroundings) -> list[Path]:
    """Return the files of settings, the strongest last."""
    system = around.system("etc", "gemini-cli")
    return [
        around.folder("GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
        if around.env.get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
        else system / "system-defaults.json",
        around.folder("GEMINI_CLI_HOME") / ".gemini" / "settings.json",
        Path(around.cwd, ".gemini", "settings.json"),
        around.folder("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
        if around.env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
        else system / "settings.json",
    ]


def chosen_method(files: list[Path], found: list[BillingFinding]) -> tuple[object, str]:
    """Return the method of login that the settings choose, and the file that chooses it."""
    method: object = None
    place = ""
    for file, settings in load(files, parse_json, found):
        named = member(settings, "security", "auth", "selectedType") or member(settings, "selectedAuthType")
        if named:
            method, place = named, file
    return method, place


def billed_method(file: str, method: str) -> BillingFinding:
    meaning = f"chooses {method!r}, which is billed with a key instead of a login"
    return BillingFinding(file=file, key="security.auth.selectedType", meaning=meaning)


def first_dotenv(around: Surroundings, folder: str) -> list[Path]:
    """Return the `.env` file that the CLI loads: the first one upward, else that of the home folder."""
    places = [place for above in (*around.upward(), around.home) for place in (above / folder / ".env", above / ".env")]
    return [next((place for place in places if place.exists()), places[-1])]


def in_dotenv(file: str, variables: object, around: Surroundings) -> list[BillingFinding]:
    """Return the variables of an `.env` file that would bill a key."""
    found = around.keys_in(file, variables, _KEYS)
    if is_on(member(variables, _SWITCH)):
        found.append(BillingFinding(file=file, key=_SWITCH, meaning="would bill a cloud account"))
    for name in _ADDRESSES:
        if is_on(member(variables, name)) and not around.is_metered:
            found.append(BillingFinding(file=file, key=name, meaning="sends the calls to another address"))
    return found


def unattended_problem(around: Surroundings, account: str, program: str = "gemini") -> tuple[str, str] | None:
    """Return why an unattended session could change no file, and the fix. None if it could."""
    settings = read_content(around.home / f".{program}" / "settings.json", parse_json)
    if member(settings, "general", "defaultApprovalMode") or member(settings, "tools", "approvalMode"):
        return None
    return f"{program} denies every change in an unattended run on {account}", SET_PERMISSIONS
