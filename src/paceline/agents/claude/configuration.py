"""Claude Code: its settings files and its login.

Where it looks, in rising order: the user's `settings.json`, `.claude/settings.json` of the working directory,
`settings.local.json` there or in the root of the repository, `--settings`, and the settings that an organisation
manages. `env` in any of them overrides the environment of the process, also in a folder that was never trusted.
"""

import re
from pathlib import Path

from paceline.agents.surroundings import SET_PERMISSIONS, Surroundings, is_on, parse_json, read_content
from paceline.detect.json_objects import items_of, member

_KEYS = re.compile(r"ANTHROPIC_(?:\w+_)?(?:API_KEY|AUTH_TOKEN)|AWS_BEARER_TOKEN_BEDROCK")
_SWITCHES = re.compile(
    r"CLAUDE_CODE_USE_(?:ANTHROPIC_AWS|BEDROCK|FOUNDRY|MANTLE|VERTEX)|CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"
)
_ADDRESSES = re.compile(r"ANTHROPIC_(?:\w+_)?BASE_URL")
_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
_KEY_HEADER = re.compile(r"^\s*(?:[\w-]*key[\w-]*|[\w-]*token[\w-]*|(?:proxy-)?authorization)\s*:", re.I | re.M)
_OWN_ADDRESS = re.compile(r"https://api\.anthropic\.com/?")


def inspect(around: Surroundings) -> None:
    """Report what in the configuration of Claude Code would bill a key."""
    for file, settings in around.load(_files(around), parse_json):
        _in_settings(file, settings, around)
    for given in around.options("--settings"):
        if given.lstrip().startswith("{"):
            named = around.parsed("--settings", given, parse_json)
        else:
            named = around.load([Path(around.cwd, given)], parse_json)
        for file, settings in named:
            _in_settings(file, settings, around)
    own = around.folder("CLAUDE_CONFIG_DIR")
    logins = [own / ".claude.json", around.folder("CLAUDE_CONFIG_DIR", ".claude") / ".config.json"]
    for file, account in around.load(logins, parse_json):
        # With a login beside it, the login is used, but Claude Code names the key as the payer.
        meaning = "is the key of a Console login, which would be billed; log in again with your plan"
        around.report_keys(file, account, ["primaryApiKey"], meaning=meaning)


def _files(around: Surroundings) -> list[Path]:
    own = around.folder("CLAUDE_CONFIG_DIR", ".claude")
    project = Path(around.cwd, ".claude")
    managed = around.system("etc", "claude-code")
    return [
        own / "settings.json",
        project / "settings.json",
        around.repository / ".claude" / "settings.local.json",
        project / "settings.local.json",
        own / "remote-settings.json",
        managed / "managed-settings.json",
        *sorted(managed.glob("managed-settings.d/*.json")),
    ]


def _in_settings(file: str, settings: object, around: Surroundings) -> None:
    for name, value in items_of(member(settings, "env")):
        meaning = _meaning(name, str(value), around)
        if meaning is not None:
            around.report(file, f"env.{name}", meaning)
    if is_on(member(settings, "apiKeyHelper")):
        around.report(file, "apiKeyHelper", "would bill the key that it prints")
    if member(settings, "forceLoginMethod") == "console" and not around.is_metered:
        meaning = "offers only Console logins, which are billed per token; a login that exists is still used"
        around.report(file, "forceLoginMethod", meaning, holds=False)


def _meaning(name: str, value: str, around: Surroundings) -> str | None:
    """Return what a variable of the settings does to the bill, or None."""
    if _KEYS.fullmatch(name):
        return "would bill this key" if around.is_foreign(value) else None
    if _SWITCHES.fullmatch(name):
        return "would bill a cloud account or another key" if is_on(value) else None
    if name == _HEADERS:
        return "adds a header that looks like a key" if _KEY_HEADER.search(value) else None
    if _ADDRESSES.fullmatch(name) and not around.is_metered and value and not _OWN_ADDRESS.fullmatch(value):
        return "sends the calls, with the login, to another address"
    return None


def unattended_problem(around: Surroundings, account: str) -> tuple[str, str] | None:
    """Return why an unattended session could change no file, and the fix. None if it could."""
    config = around.folder("CLAUDE_CONFIG_DIR", ".claude")
    own = read_content(config / "settings.json", parse_json)
    if member(own, "permissions", "allow") or member(own, "permissions", "defaultMode"):
        return None
    project = [Path(around.cwd, ".claude", name) for name in ("settings.json", "settings.local.json")]
    allowing = [path for path in project if member(read_content(path, parse_json), "permissions", "allow")]
    if not allowing:
        return f"claude denies every change in an unattended run on {account}", SET_PERMISSIONS
    has_own_folder = bool(around.env.get("CLAUDE_CONFIG_DIR"))
    if _is_trusted(around, config / ".claude.json" if has_own_folder else config.parent / ".claude.json"):
        return None
    text = f"claude on {account} was never trusted with {around.cwd} and ignores permissions.allow of {allowing[0]}"
    where = f"CLAUDE_CONFIG_DIR={config} " if has_own_folder else ""
    return text, f"{SET_PERMISSIONS}, or trust the folder once: cd {around.cwd} && {where}claude"


def _is_trusted(around: Surroundings, state: Path) -> bool:
    """Return whether the account's configuration trusts the folder, or one around it."""
    projects = member(read_content(state, parse_json), "projects")
    return any(member(projects, str(path), "hasTrustDialogAccepted") is True for path in around.upward())
