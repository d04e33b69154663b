"""The keys of the [campaign] table, and the check of each value.

Never here: checks that need a second key or the settings (`plan_file`).
"""

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paceline.agents.launch import EnvironmentRules
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.validation import LARGEST_LIMIT
from paceline.errors import InvalidInput
from paceline.redaction import secret_in
from paceline.settings import checks
from paceline.settings.documents import Check, Document, PrivateValue
from paceline.settings.load import MOST_ATTEMPTS
from paceline.settings.model import Strategy
from paceline.settings.plan_units import SAFE_NAME, is_safe_name
from paceline.store.interface import (
    Campaign,
    Delivery,
    Keep,
    OnDenied,
    OnLongPark,
    Permissions,
    UnitSpec,
    WorkspaceKind,
    WorkspaceSettings,
)
from paceline.store.unit_result import GitSettings
from paceline.workspaces import branch_mistake, include_mistake, read_settings, resolve_base

HIGHEST_PRIORITY = 100
"""One level doubles the share, so 100 levels are far more than any share can express."""
EXECUTORS = ("process", "openclaw")
"""What runs the sessions: processes of agent CLIs, or the gateway of OpenClaw with its sub-agents."""
MOST_ROUNDS = 20
"""An agent that has not repaired its work after so many failed checks never will, and each round costs money."""
_OWN_VARIABLE = re.compile(r"PACELINE_.*", re.I)
_COUNT = Annotated[int, Meta(ge=1)]
_TIME = str | float
_TEXTS = list[str]
_PATTERN = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")
_HOST_PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def command_list(value: object) -> tuple[str, ...]:
    """Check a command of the plan: a list of texts, of which the first names a program."""
    command = checks.text_list(value, 'must be a command as a list of texts, such as ["make", "test"]')
    if not command[0].strip():
        raise InvalidInput("must begin with a program")
    return command


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
    arguments = checks.text_list(value, 'must be a list of texts, such as ["--max-turns", "40"]', may_be_empty=True)
    for number, argument in enumerate(arguments, 1):
        if (kind := secret_in(argument)) is not None:
            raise PrivateValue(
                f"contains a secret ({kind}) in text {number}, which must not be in a plan;"
                " set it in the environment and name the variable in env_pass"
            )
    return arguments


def _variables(value: object) -> dict[str, str]:
    """Check variables of the session. The plan is stored."""

    def refuse_secret(name: str, content: str) -> None:
        if _OWN_VARIABLE.fullmatch(name):
            raise InvalidInput(f"{name} is set by Paceline itself; remove it")
        kind = "by its name" if checks.names_a_secret(name) else secret_in(content)
        if kind is not None:
            raise PrivateValue(
                f"sets {name}, which looks like a secret ({kind}) and must not be in a plan;"
                f' set it in the environment and write env_pass = ["{name}"]'
            )

    return checks.variables(value, '{ LANG = "C.UTF-8" }', refuse_secret)


def _variable_patterns(value: object) -> tuple[str, ...]:
    """Check names of variables, in which * and ? stand for other characters."""
    patterns = checks.text_list(value, 'must be a list of names or patterns, such as ["GITHUB_*"]', may_be_empty=True)
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput(f'{pattern!r:.60} is not a name or pattern of variables, such as "GITHUB_*"')
        if not pattern.strip("*?_"):
            raise InvalidInput(f"{pattern!r:.60} would pass every secret; name the variables that the sessions need")
    return patterns


def _names(pattern: re.Pattern[str], wanted: str) -> Check:
    """Return a check of a list of names that the pattern matches. `wanted` is what each must be."""

    def check(value: object) -> tuple[str, ...]:
        names = checks.texts(value)
        for name in names:
            if not pattern.fullmatch(name):
                raise InvalidInput(f"{name!r:.60} is not {wanted}")
        return names

    return check


_host_patterns = _names(_HOST_PATTERN, 'a name or pattern of hosts, such as "box1", "gpu*" or "local"')
_labels = _names(_LABEL, 'a label, such as "gpu": write letters, digits and . _ -')


def _check_prompt(value: object) -> str:
    prompt = checks.text(value)
    if "{output}" not in prompt:
        raise InvalidInput("must contain {output}, which the output of the check replaces")
    return prompt


def _delivery(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        if value not in get_args(Delivery):
            raise InvalidInput('must be "branch", "patch", or a command as a list, such as ["gh", "pr", "create"]')
        return value
    return command_list(value)


def _choice(literal: object) -> Check:
    return checks.one_of(*get_args(literal))


class CampaignField(msgspec.Struct, frozen=True):
    """A key of [campaign], named as the field of `Campaign` that it sets."""

    check: Check
    changed_by: Any = None
    """The type of the JSON value that changes a stored campaign. None: it is set when the campaign is added."""


CAMPAIGN_FIELDS: Mapping[str, CampaignField] = {
    "name": CampaignField(_name),
    "priority": CampaignField(checks.whole_number(-HIGHEST_PRIORITY, HIGHEST_PRIORITY), int),
    "max_sessions": CampaignField(checks.limit, Annotated[int, Meta(ge=1, le=LARGEST_LIMIT)] | None),
    "strategy": CampaignField(_choice(Strategy), Strategy),
    "deadline": CampaignField(_deadline, _TIME | None),
    "agent": CampaignField(checks.text),
    "executor": CampaignField(checks.one_of(*EXECUTORS)),
    "model": CampaignField(_model, str | None),
    "accounts": CampaignField(checks.texts, _TEXTS),
    "max_attempts": CampaignField(checks.whole_number(1, MOST_ATTEMPTS), _COUNT),
    "timeout": CampaignField(checks.span, _TIME | None),
    "command": CampaignField(checks.texts),
    "permissions": CampaignField(_choice(Permissions), Permissions | None),
    "on_denied": CampaignField(_choice(OnDenied), OnDenied),
    "args": CampaignField(_arguments, _TEXTS),
    "env": CampaignField(_variables, dict[str, str]),
    "env_pass": CampaignField(_variable_patterns, _TEXTS),
    "env_strict": CampaignField(checks.truth, bool),
    "allow_metered": CampaignField(checks.truth, bool),
    "check": CampaignField(command_list, _TEXTS),
    "check_timeout": CampaignField(checks.span, _TIME),
    "check_rounds": CampaignField(checks.whole_number(0, MOST_ROUNDS), Annotated[int, Meta(ge=0)]),
    "check_prompt": CampaignField(_check_prompt, str | None),
    "commit": CampaignField(checks.truth),
    "deliver": CampaignField(_delivery),
    "workspace": CampaignField(checks.anything),
    "hosts": CampaignField(_host_patterns, _TEXTS),
    "labels": CampaignField(_labels, _TEXTS),
    "patience": CampaignField(checks.span, _TIME),
    "on_long_park": CampaignField(_choice(OnLongPark), OnLongPark),
}
CAMPAIGN_CHECKS: Mapping[str, Check] = {name: field.check for name, field in CAMPAIGN_FIELDS.items()}
CampaignChanges = msgspec.defstruct(
    "CampaignChanges",
    [
        (name, field.changed_by | UnsetType, UNSET)
        for name, field in CAMPAIGN_FIELDS.items()
        if field.changed_by is not None
    ],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={
        "__doc__": "Settings of a campaign that can be changed."
        " A missing field stays as it is; null removes an optional value.",
    },
    module=__name__,
)
"""The body of a request that changes a stored campaign."""


# -- [campaign.workspace] --------------------------------------------------------------------------

WORKSPACE = ("campaign", "workspace")


def _branch(value: object) -> str:
    branch = checks.text(value)
    if (mistake := branch_mistake(branch)) is not None:
        raise InvalidInput(f"cannot name the branches of units: {mistake}")
    return branch


def _include(value: object) -> tuple[str, ...]:
    patterns = checks.texts(value)
    for pattern in patterns:
        if (mistake := include_mistake(pattern)) is not None:
            raise InvalidInput(f"{pattern!r:.60} cannot be included: {mistake}")
    return patterns


def _root(value: object) -> str:
    root = os.path.expanduser(checks.text(value))
    if not os.path.isabs(root):
        raise InvalidInput("must be an absolute path, or begin with ~")
    return os.path.normpath(root)


WORKSPACE_FIELDS: Mapping[str, Check] = {
    "kind": checks.one_of(*get_args(WorkspaceKind), "none"),
    "base": checks.text,
    "branch": _branch,
    "include": _include,
    "setup": command_list,
    "keep": _choice(Keep),
    "root": _root,
}


def read_workspace(document: Document, value: object) -> WorkspaceSettings | None:
    """Return the settings of the [campaign.workspace] table; None for kind = "none". Stored settings stay so."""
    if isinstance(value, WorkspaceSettings):
        return value
    table = document.table(WORKSPACE, value)
    fields = document.fields(WORKSPACE, table, WORKSPACE_FIELDS)
    kind = fields.get("kind", "none")
    if "kind" not in table:
        document.refuse(WORKSPACE, 'the workspace needs a kind: kind = "worktree", "copy" or "none"')
    if kind == "copy":
        for key in ("base", "branch", "include"):
            if key in table:
                document.refuse((*WORKSPACE, key), f'{key} is for kind = "worktree"; a copy has no branch; remove it')
    return None if kind == "none" else msgspec.convert(fields, WorkspaceSettings)


def with_bases(settings: WorkspaceSettings, units: Iterable[UnitSpec], document: Document) -> WorkspaceSettings:
    """Return the settings with the commit that `base` means now in the repository of each unit."""
    if settings.kind == "copy":
        return settings
    bases: dict[str, str] = {}
    git: dict[str, GitSettings] = {}
    for cwd in dict.fromkeys(unit.cwd for unit in units):
        try:
            top, commit = resolve_base(cwd, settings.base)
        except InvalidInput as error:
            document.refuse(WORKSPACE, f"no worktree can be made for {cwd}: {error}")
            break  # the others fail alike
        if top not in bases:
            bases[top], git[top] = commit, read_settings(top)
    return msgspec.structs.replace(settings, bases=bases, git=git)


def environment_rules(campaign: Campaign, key_variables: frozenset[str]) -> EnvironmentRules:
    """Return the rules of a campaign, with the variables that hold the keys of accounts."""
    return EnvironmentRules(
        env_pass=campaign.env_pass,
        env_strict=campaign.env_strict,
        allow_metered=campaign.allow_metered,
        key_variables=key_variables,
    )
