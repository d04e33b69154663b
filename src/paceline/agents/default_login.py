"""The default login of an agent CLI: the account that it uses when nobody names one.

Here: whose login it is, and the folder in which the CLI keeps it. Never here: whether somebody is logged in.
"""

import os
from collections.abc import Mapping

from paceline.agents.account import DEFAULT, Account
from paceline.agents.profile import AgentProfile, agent_names, load_agent

_VENDORS = {
    "claude": "anthropic",
    "codex": "openai",
    "gemini": "google",
    "qwen": "qwen",
    "copilot": "github",
    "openclaw": "openclaw",
    "opencode": "opencode",
    "aider": "aider",
}
"""The provider whose login a program uses. Any other CLI counts as a provider of its own."""
_FOLDERS = {
    "anthropic": ("CLAUDE_CONFIG_DIR", "", ".claude"),
    "openai": ("CODEX_HOME", "", ".codex"),
    "google": ("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    "openclaw": ("OPENCLAW_STATE_DIR", "", ".openclaw"),
    "openclaw-gateway": ("OPENCLAW_GATEWAY_URL", "", ".openclaw"),
    "opencode": ("XDG_DATA_HOME", "opencode", ".local/share/opencode"),
}
"""The variable that moves a CLI's folder, the folder below its value, and the one in the home folder otherwise."""


def vendor_of(profile: AgentProfile) -> str:
    """Return the provider whose login the CLI uses. Profiles that start the same program share its login."""
    return _VENDORS.get(os.path.basename(profile.start[0]), profile.name)


def default_account(profile: AgentProfile) -> Account | None:
    """Return the account of the CLI's own login; None for a plan's own command, which has no login that we know."""
    if not profile.start:
        return None
    return Account(name=DEFAULT, provider=vendor_of(profile), kind="subscription", is_implicit=True)


def shipped_logins() -> dict[str, Account]:
    """Return the default login of every shipped agent, by the agent's name."""
    accounts = {name: default_account(load_agent(name)) for name in agent_names()}
    return {name: account for name, account in accounts.items() if account is not None}


def login_variable(provider: str) -> str | None:
    """Return the variable that moves the folder in which the provider's CLI keeps its login, if it has one."""
    return _FOLDERS[provider][0] if provider in _FOLDERS else None


def login_folder(provider: str, env: Mapping[str, str]) -> str:
    """Return the folder in which a CLI with this environment keeps its login. Two logins never share one."""
    variable, below, default = _FOLDERS.get(provider, ("", "", f".{provider}"))
    if moved := env.get(variable):
        return os.path.normpath(os.path.join(moved, below))
    return os.path.normpath(os.path.join(env.get("HOME") or os.path.expanduser("~"), default))
