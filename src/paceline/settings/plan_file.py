"""Plan files: a campaign and its units, read and checked completely before anything starts.

Here: the [campaign] and [[unit]] tables: the check of each key of a campaign, then what needs a second key or the
settings. `plan_units` reads units, also from other files, and says what makes one valid.
Never here: starting anything.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paceline.agents import AgentProfile, agent_names, load_agent
from paceline.agents.account import DEFAULT, Account
from paceline.agents.launch import LONGEST_ARGUMENT_BYTES, EnvironmentRules, agent_of_other_provider
from paceline.clock import SystemClock
from paceline.core.values.scopes import canonical_scope
from paceline.core.values.validation import LARGEST_LIMIT
from paceline.errors import InvalidInput, InvalidPlan
from paceline.events import Event
from paceline.redaction import secret_in
from paceline.settings import checks
from paceline.settings.checks import Check, Document, Mistakes, PrivateValue, did_you_mean, read_toml, shown
from paceline.settings.host_fields import may_run_here
from paceline.settings.load import MOST_ATTEMPTS
from paceline.settings.model import Settings, Strategy
from paceline.settings.plan_units import (
    SAFE_NAME,
    UNITS,
    PromptRules,
    UnitList,
    add_units,
    command_placeholders,
    is_safe_name,
)
from paceline.store import Store
from paceline.store.interface import (
    Added,
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
    for cwd in dict.fromkeys(unit.cwd for unit in units):
        try:
            top, commit = resolve_base(cwd, settings.base)
        except InvalidInput as error:
            document.refuse(WORKSPACE, f"no worktree can be made for {cwd}: {error}")
            break  # the others fail alike
        bases.setdefault(top, commit)
    return msgspec.structs.replace(settings, bases=bases, git={top: read_settings(top) for top in bases})


def environment_rules(campaign: Campaign, key_variables: frozenset[str]) -> EnvironmentRules:
    """Return the rules of a campaign, with the variables that hold the keys of accounts."""
    return EnvironmentRules(
        env_pass=campaign.env_pass,
        env_strict=campaign.env_strict,
        allow_metered=campaign.allow_metered,
        key_variables=key_variables,
    )


# -- plans -------------------------------------------------------------------------------------------

CAMPAIGN = "campaign"
UNIT = "unit"
TABLES = (CAMPAIGN, UNIT, UNITS)
PLACEHOLDERS = ("prompt", "id", "model", "session_id")
NEVER: Mapping[str, float] = {}
"""The times at which campaigns were added, if none was."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a plan file. Paths are absolute; durations and times are in seconds."""

    campaign: Campaign
    units: tuple[UnitSpec, ...]


def read_plan(
    path: Path, settings: Settings | None = None, *, now: float | None = None, added_at: Mapping[str, float] = NEVER
) -> Plan:
    """Read and check a plan file. Raise `InvalidPlan` with every mistake in it.

    Without settings the accounts are not checked. A deadline must lie after `now` (default: the present). The deadline
    of a stored campaign may have passed, so that it can continue late: it must lie after the time in `added_at`, which
    maps names of stored campaigns to the time each was first added.
    """
    mistakes = Mistakes()
    document = read_toml(path, mistakes)
    mistakes.raise_as(InvalidPlan)
    assert document is not None  # or there would be a mistake
    return plan_of(document, path.parent, settings, now=now, added_at=added_at)


def plan_of(
    document: Document,
    folder: Path,
    settings: Settings | None = None,
    *,
    now: float | None = None,
    added_at: Mapping[str, float] = NEVER,
) -> Plan:
    """Check the tables of a plan that was read already, as `read_plan` does. Relative paths begin in `folder`."""
    for name in document.values:
        if name not in TABLES:
            document.refuse_key((name,), TABLES)
    reader = _CampaignReader(document, settings)
    campaign = reader.read(SystemClock().now() if now is None else now, added_at)
    units = UnitList(folder, reader.prompt_rules(), document.mistakes)
    _read_units(document, folder, units)
    if reader.workspace is not None:
        campaign["workspace"] = with_bases(reader.workspace, units.units, document)
    document.mistakes.raise_as(InvalidPlan)
    return Plan(campaign=msgspec.convert(campaign, Campaign), units=tuple(units.units))


def campaign_with_changes(
    campaign: Campaign, changes: Mapping[str, object], settings: Settings, *, now: float
) -> Campaign:
    """Return a campaign with some fields changed, named and written as in a plan. None removes a field."""
    left_out = ("executor", *(("commit", "deliver") if campaign.workspace is None else ()))  # `agent` says the first
    stored = {field: getattr(campaign, field) for field in CAMPAIGN_FIELDS if field not in left_out}
    if campaign.deadline is not None:
        stored["deadline"] = datetime.fromtimestamp(campaign.deadline, UTC)
    written = {field: value for field, value in {**stored, **changes}.items() if value not in (None, (), [], {})}
    document = Document(campaign.name, {CAMPAIGN: written})
    reader = _CampaignReader(document, settings)
    fields = reader.read(now)
    document.mistakes.raise_as(InvalidPlan)
    kept = {"workspace": reader.workspace, "state": campaign.state, "created_at": campaign.created_at}
    return msgspec.convert({**fields, **kept}, Campaign)


SUB_AGENTS_OF, SUB_AGENTS = "openclaw", "openclaw-gateway"
"""The agent of a plan with `executor = "openclaw"`, and the profile that runs its sub-agents."""

# -- [campaign] ------------------------------------------------------------------------------


class _CampaignReader:
    """A reader of the [campaign] table."""

    def __init__(self, document: Document, settings: Settings | None) -> None:
        self._document = document
        self._settings = settings
        self._table = document.table((CAMPAIGN,), document.values.get(CAMPAIGN, {}))
        self._fields = document.fields((CAMPAIGN,), self._table, CAMPAIGN_CHECKS)
        self._executor = self._fields.pop("executor", None)
        self._profile: AgentProfile | None = None
        workspace = self._fields.pop("workspace", None)
        self.workspace = None if workspace is None else read_workspace(document, workspace)

    def read(self, now: float, added_at: Mapping[str, float] = NEVER) -> dict[str, object]:
        """Return the fields of a `Campaign`. The settings fill in what the plan leaves out."""
        fields = self._fields
        if "name" not in self._table:
            self._refuse_table('needs a name: [campaign] and below it name = "..."')
        earliest = added_at.get(str(fields.get("name")), now)
        if isinstance(deadline := fields.get("deadline"), float) and deadline <= earliest:
            self._refuse("deadline", "is in the past")
        self._check_agent()
        self._check_command()
        self._check_permissions()
        self._check_accounts()
        self._check_delivery()
        if self._settings is not None:
            fields.setdefault("strategy", self._settings.engine.strategy)
            fields.setdefault("max_attempts", self._settings.engine.max_attempts)
        return fields

    def prompt_rules(self) -> PromptRules:
        """Return the rules for prompts of the agent. Call it after `read`."""
        rules = self._rules_of_agent()
        hosts, labels = self._fields.get("hosts") or (), self._fields.get("labels") or ()
        assert isinstance(hosts, tuple)
        assert isinstance(labels, tuple)
        is_for_here = self.workspace is not None or may_run_here(hosts, labels, self._settings)
        return msgspec.structs.replace(rules, has_own_tree=self.workspace is not None, is_for_here=is_for_here)

    def _rules_of_agent(self) -> PromptRules:
        if self._profile is None:
            return PromptRules()
        if not self._profile.start:
            if not any("prompt" in command_placeholders(argument) for argument in self._command()):
                return PromptRules(is_needed=False, command=self._command())
            return _as_argument("remove {prompt} from the command to get it on standard input", self._command())
        if not self._profile.takes_stdin:
            return _as_argument(f"agent {self._profile.name} takes its prompt only as an argument")
        return PromptRules()

    def _check_agent(self) -> None:
        known = self._settings.agent_names() if self._settings else agent_names()
        if self._executor == "openclaw":
            self._choose_sub_agents()
        elif "agent" not in self._table:
            if "command" not in self._table:
                self._refuse_table(f"needs an agent, one of {', '.join(known)}, or a command")
                return
            self._fields["agent"] = "command"
        name = self._fields.get("agent")
        if not isinstance(name, str):
            return
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            self._refuse("agent", f"there is no such agent{hint}")
            return
        self._profile = self._settings.agent(name) if self._settings else load_agent(name)

    def _choose_sub_agents(self) -> None:
        """Make `executor = "openclaw"` the agent that it means."""
        if self._fields.get("agent", SUB_AGENTS_OF) not in (SUB_AGENTS_OF, SUB_AGENTS):
            fix = f'its gateway runs its own sub-agents; write agent = "{SUB_AGENTS_OF}", or remove the agent'
            self._refuse("executor", f"does not run the agent {shown(self._fields['agent'])}: {fix}")
        self._fields["agent"] = SUB_AGENTS

    def _check_command(self) -> None:
        if self._profile is not None:
            if self._profile.start and "command" in self._table:
                fix = f'agent {shown(self._profile.name)} brings its own; remove it, or write agent = "command"'
                self._refuse("command", fix)
            elif not self._profile.start and "command" not in self._table:
                self._refuse("agent", 'needs a command: command = ["sh", "-c", "..."]')
        for argument in self._command():
            for name in command_placeholders(argument):
                if name not in PLACEHOLDERS:
                    hint = did_you_mean(name, PLACEHOLDERS) or "; there are {prompt}, {id}, {model}"
                    own_braces = f"(braces of your own need a space inside: {{ {name} }})"
                    self._refuse("command", f"unknown placeholder {{{name}}}{hint} {own_braces}")

    def _check_permissions(self) -> None:
        level = self._fields.get("permissions")
        if self._profile is None or level is None:
            return
        name = self._profile.name
        if not self._profile.start:
            self._refuse("permissions", "a command has no permissions that Paceline could set; remove it")
        elif level not in self._profile.permissions:
            fix = f"remove it, or add [agents.{name}.permissions.{level}] with its arguments to paceline.toml"
            self._refuse("permissions", f"agent {shown(name)} has no flags for it; {fix}")

    def _check_delivery(self) -> None:
        """Refuse commits and deliveries that the workspaces of the plan cannot have."""
        kind = None if self.workspace is None else self.workspace.kind
        if kind is None:
            for key in ("commit", "deliver"):
                if key in self._table:
                    self._refuse(key, 'needs workspaces: add [campaign.workspace] with kind = "worktree"')
        elif kind == "copy":
            if self._fields.get("commit") or self._fields.get("deliver") == "branch":
                key = "commit" if self._fields.get("commit") else "deliver"
                self._refuse(key, 'a copy has no branch; use kind = "worktree", or deliver = "patch"')
            self._fields["commit"] = False

    def _command(self) -> tuple[str, ...]:
        command = self._fields.get("command")
        return command if isinstance(command, tuple) else ()

    def _check_accounts(self) -> None:
        accounts = self._fields.get("accounts")
        if not isinstance(accounts, tuple):
            return
        found = {name: self._account(name) for name in accounts}
        ids = [name if account is None else account.id for name, account in found.items()]
        if len(set(ids)) < len(accounts):
            self._refuse("accounts", "the same account is named twice")
        self._fields["accounts"] = tuple(ids)
        if self._settings is None:
            return
        for name, account in found.items():
            if account is None:
                hint = did_you_mean(name, self._settings.accounts) or f"; add [accounts.{name}] to paceline.toml"
                self._refuse("accounts", f"there is no account {shown(name)}{hint}")
            elif self._profile is not None:
                self._check_provider(self._profile, account)

    def _check_provider(self, profile: AgentProfile, account: Account) -> None:
        """Refuse a login that the agent would not use: it would run on its own default login, booked on this one."""
        other = agent_of_other_provider(profile, account)
        if other is not None:
            fix = f'set agent = "{other}", or name an account of its provider'
            text = f"{shown(account.id)} is an account of {account.provider}, which {profile.name} cannot use; {fix}"
            self._refuse("accounts", text)

    def _account(self, name: str) -> Account | None:
        """Return the account that the plan names; `default` is the default login of its agent."""
        if self._settings is None:
            return None
        if name == DEFAULT and self._profile is not None and self._profile.start:
            return self._settings.login(self._profile.name)
        return self._settings.account(name)

    def _refuse(self, key: str, wanted: str) -> None:
        self._document.refuse_value((CAMPAIGN, key), self._table.get(key), wanted)

    def _refuse_table(self, message: str) -> None:
        self._document.refuse((CAMPAIGN,), f"the campaign {message}")


def _as_argument(hint: str, command: tuple[str, ...] = ()) -> PromptRules:
    why = f"an argument has at most {LONGEST_ARGUMENT_BYTES:,}; {hint}"
    return PromptRules(most_bytes=LONGEST_ARGUMENT_BYTES, why_most=why, command=command)


# -- units -----------------------------------------------------------------------------------


def _any_text(value: object) -> str:
    """Check only the type: prompts and ids have further checks, which name the unit."""
    if not isinstance(value, str):
        raise InvalidInput("must be text in quotes")
    return value


UNIT_FIELDS: Mapping[str, Check] = {"id": _any_text, "prompt": _any_text, "cwd": _any_text, "output": _any_text}


def _read_units(document: Document, folder: Path, units: UnitList) -> None:
    inline = document.values.get(UNIT, [])
    if not isinstance(inline, list) or not all(isinstance(each, dict) for each in inline):
        document.refuse((UNIT,), "write each unit as [[unit]], with two brackets")
        return
    if isinstance(document.values.get(UNITS), list):
        document.refuse(
            (UNITS,), "write each unit as [[unit]], without s; [units] is one table that names a source of units"
        )
        return
    if not inline and UNITS not in document.values:
        document.mistakes.add(
            document.source, "there are no units; add a [[unit]] with id and prompt, or [units] with a source"
        )
    for number, table in enumerate(inline):
        _read_inline(document, number, table, units)
    if UNITS in document.values:
        table = document.table((UNITS,), document.values[UNITS])
        add_units(document, table, folder, units)


def _read_inline(document: Document, number: int, table: Mapping[str, object], units: UnitList) -> None:
    path = (UNIT, number)
    fields = {key: str(value) for key, value in document.fields(path, table, UNIT_FIELDS).items()}
    if "id" not in table:
        document.refuse(path, f'unit {number + 1} needs an id: id = "..."')
    if "id" in fields and all(key in fields for key in UNIT_FIELDS if key in table):
        units.add(document.at(path), fields["id"], fields.get("prompt", ""), fields.get("cwd"), fields.get("output"))


# -- import into the store -------------------------------------------------------------------------


async def import_in_steps(store: Store, plan: Plan, *, update: bool, now: float, events: Sequence[Event]) -> Added:
    """Add the campaign of a checked plan together with `events`, as `Store.add_campaign` does.

    Between two steps the event loop runs: a hundred thousand units hold nobody up.
    """
    adding = store.add_campaign_in_steps(plan.campaign, plan.units, update=update, now=now, events=events)
    with contextlib.closing(adding) as steps:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                added: Added = end.value
                return added
            await asyncio.sleep(0)
