"""Plan files: a campaign and its units, read and checked completely before anything starts.

Here: the [campaign] and [[unit]] tables, checked against the settings. `campaign_fields` checks each key of a campaign,
`plan_units` reads units, also from other files, and says what makes one valid.
Never here: starting anything.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paceline.agents import AgentProfile, agent_names, load_agent
from paceline.agents.account import DEFAULT, Account
from paceline.agents.launch import LONGEST_ARGUMENT_BYTES, agent_of_other_provider
from paceline.clock import SystemClock
from paceline.errors import InvalidInput, InvalidPlan
from paceline.events import Event
from paceline.settings.campaign_fields import CAMPAIGN_CHECKS, CAMPAIGN_FIELDS, read_workspace, with_bases
from paceline.settings.documents import Check, Document, Mistakes, did_you_mean, read_toml, shown
from paceline.settings.host_fields import may_run_here
from paceline.settings.model import Settings
from paceline.settings.plan_units import UNITS, PromptRules, UnitList, add_units, command_placeholders
from paceline.store.interface import Added, Campaign, Store, UnitSpec

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
