"""The keys of the [campaign] table, and the check of each value.

Never here: checks that need a second key or the settings (`plan_file`).
"""

import re
from collections.abc import Mapping
from datetime import datetime

from paceline.config_files import checks
from paceline.config_files.documents import Check, PrivateValue
from paceline.core.values.scopes import canonical_scope
from paceline.errors import InvalidInput
from paceline.plans.unit_rules import SAFE_NAME, is_safe_name
from paceline.plans.workspace_fields import command_list
from paceline.redaction.secret_shapes import secret_in
from paceline.settings.load import MOST_ATTEMPTS, STRATEGIES

HIGHEST_PRIORITY = 100
"""One level doubles the share, so 100 levels are far more than any share can express."""
PERMISSIONS = ("read", "edit", "full")
EXECUTORS = ("process", "openclaw")
"""What runs the sessions: processes of agent CLIs, or the gateway of OpenClaw with its sub-agents."""
ON_DENIED = ("hold", "done")
ON_LONG_PARK = ("resume", "restart")
DELIVERIES = ("branch", "patch")
MOST_ROUNDS = 20
"""An agent that has not repaired its work after so many failed checks never will, and each round costs money."""
_OWN_VARIABLE = re.compile(r"PACELINE_.*", re.I)
_PATTERN = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")
_HOST_PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_safe_name(value):
        raise InvalidInput(f"cannot name a campaign: {SAFE_NAME}")
    if "*" in value or "?" in value:
        raise InvalidInput("cannot name a campaign: * and ? would make its limit a pattern for other campaigns")
    return value


def _model(value: object) -> str:
    return checks.scope_check(lambda name: canonical_scope(f"provider/account/{name}"))(value)


def _deadline(value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput("must be a date and time with its zone, without quotes: 2026-12-01T08:00:00Z")
    return value.timestamp()


def _arguments(value: object) -> tuple[str, ...]:
    """Check more arguments of the agent. Everybody on the machine can read them, so a secret is refused."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidInput('must be a list of texts, such as ["--max-turns", "40"]')
    if any("\0" in each for each in value):
        raise InvalidInput("must not contain a NUL character")
    for number, argument in enumerate(value, 1):
        if (kind := secret_in(argument)) is not None:
            raise PrivateValue(
                f"contains a secret ({kind}) in text {number}, which must not be in a plan;"
                " set it in the environment and name the variable in env_pass"
            )
    return tuple(value)


def _variables(value: object) -> dict[str, str]:
    """Check variables of the session. Secrets are refused: the plan is stored, and many people can read it."""
    if not isinstance(value, Mapping):
        raise InvalidInput('must be a table of variables, such as { LANG = "C.UTF-8" }')
    for name, content in value.items():
        if not isinstance(name, str) or not checks.is_variable_name(name):
            raise InvalidInput(f"{name!r:.60} is not a valid name of a variable")
        if _OWN_VARIABLE.fullmatch(name):
            raise InvalidInput(f"{name} is set by Paceline itself; remove it")
        if not isinstance(content, str) or "\0" in content:
            raise InvalidInput(f"{name} must be text in quotes")
        kind = "by its name" if checks.names_a_secret(name) else secret_in(content)
        if kind is not None:
            raise PrivateValue(
                f"sets {name}, which looks like a secret ({kind}) and must not be in a plan;"
                f' set it in the environment and write env_pass = ["{name}"]'
            )
    return dict(value)


def _variable_patterns(value: object) -> tuple[str, ...]:
    """Check names of variables, in which * and ? stand for other characters."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidInput('must be a list of names or patterns, such as ["GITHUB_*"]')
    for pattern in value:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput(f'{pattern!r:.60} is not a name or pattern of variables, such as "GITHUB_*"')
        if not pattern.strip("*?_"):
            raise InvalidInput(f"{pattern!r:.60} would pass every secret; name the variables that the sessions need")
    return tuple(value)


def _host_patterns(value: object) -> tuple[str, ...]:
    """Check names of hosts, in which * and ? stand for other characters."""
    for pattern in checks.texts(value):
        if not _HOST_PATTERN.fullmatch(pattern):
            raise InvalidInput(f'{pattern!r:.60} is not a name or pattern of hosts, such as "box1", "gpu*" or "local"')
    return checks.texts(value)


def _labels(value: object) -> tuple[str, ...]:
    """Check labels, all of which a host must have."""
    for label in checks.texts(value):
        if not _LABEL.fullmatch(label):
            raise InvalidInput(f'{label!r:.60} is not a label, such as "gpu": write letters, digits and . _ -')
    return checks.texts(value)


def _check_prompt(value: object) -> str:
    prompt = checks.text(value)
    if "{output}" not in prompt:
        raise InvalidInput("must contain {output}, which the output of the check replaces")
    return prompt


def _delivery(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        if value not in DELIVERIES:
            raise InvalidInput('must be "branch", "patch", or a command as a list, such as ["gh", "pr", "create"]')
        return value
    return command_list(value)


CAMPAIGN_FIELDS: Mapping[str, Check] = {
    "name": _name,
    "priority": checks.whole_number(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
    "max_sessions": checks.limit,
    "strategy": checks.one_of(*STRATEGIES),
    "deadline": _deadline,
    "agent": checks.text,
    "executor": checks.one_of(*EXECUTORS),
    "model": _model,
    "accounts": checks.texts,
    "max_attempts": checks.whole_number(1, MOST_ATTEMPTS),
    "timeout": checks.span,
    "command": checks.texts,
    "permissions": checks.one_of(*PERMISSIONS),
    "on_denied": checks.one_of(*ON_DENIED),
    "args": _arguments,
    "env": _variables,
    "env_pass": _variable_patterns,
    "env_strict": checks.truth,
    "allow_metered": checks.truth,
    "check": command_list,
    "check_timeout": checks.span,
    "check_rounds": checks.whole_number(0, MOST_ROUNDS),
    "check_prompt": _check_prompt,
    "commit": checks.truth,
    "deliver": _delivery,
    "workspace": checks.anything,
    "hosts": _host_patterns,
    "labels": _labels,
    "patience": checks.span,
    "on_long_park": checks.one_of(*ON_LONG_PARK),
}
