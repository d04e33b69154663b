"""What is known about the work of a unit over all its attempts: its answer, its cost, its change, its checks.

Here: the values. Never here: how they are measured, or how they are stored.
"""

import msgspec

from paceline.core.values.session_output import Tokens


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars, or None where they are not known. A subscription bills nothing for a unit: its cost is imputed."""

    billed: float | None = None
    imputed: float | None = None


class CheckRound(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the check of a unit. `tail` is the end of its output, None in lists, which leave it out.

    `reason` is why it did not start, or did not end by itself.
    """

    exit_code: int | None
    seconds: float
    tail: str | None
    reason: str | None = None

    @property
    def output(self) -> str:
        """What the agent reads of it: the end of the output, and why the check did not end by itself."""
        return "\n".join(part for part in (self.tail, self.reason) if part)


class Carried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the next attempt of a unit is counted from."""

    conversation_tokens: dict[str, Tokens] = {}
    """Tokens of its conversation by model: some CLIs count all attempts of a conversation together."""
    left_at: float | None = None
    """When its last attempt ended."""
    is_parked: bool = False
    """Whether that attempt ended for a quota window."""
    cached_at: float | None = None
    """When the model last answered in its conversation, so that the provider's cache had it."""
    is_restarted: bool = False
    """Whether the next answer begins a new conversation: the last one was too large to resume, or was gone."""
    warnings: tuple[str, ...] = ()
    """What a person should know about earlier attempts, whatever becomes of the unit."""


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the outcome of an attempt needs of its session."""

    account: str | None = None
    conversation_id: str | None = None
    denials: int = 0
    warnings: tuple[str, ...] = ()


class SessionEnd(SessionFacts, frozen=True, kw_only=True, omit_defaults=True):
    """How the agent's session ended whose work is being checked or delivered."""

    exit_code: int | None = None


class EndRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The wish that an attempt ends at its next turn. The unit may continue at `resume_at`, or with its next slot."""

    attempt_id: str
    reason: str
    resume_at: float | None = None
    is_held: bool = False
    """Whether the unit is held then, until a person resumes it."""
    is_landing: bool = False
    """Whether its quota window is about to close: the unit is parked then."""


class GitSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What git may use of the user's configuration in a repository, as it stood when the plan was added.

    An agent can write to the configuration of the repository later, so nothing of that is used.
    """

    values: tuple[tuple[str, str], ...] = ()
    """Keys and values: who commits, how files are written, and the commands of filters."""
    attributes: str = ""
    """The file `info/attributes`."""
    exclude: str = ""
    """The file `info/exclude`."""
    alternates: str | None = None
    """Where it takes objects from; None if that is not known."""

    def value(self, key: str) -> str | None:
        """Return the last value of a key, or None."""
        return next((value for name, value in reversed(self.values) if name == key), None)

    @property
    def filters(self) -> frozenset[str]:
        """The names of the filters that have a command."""
        named = (key.split(".", 1)[1].rpartition(".") for key, _ in self.values if key.startswith("filter."))
        return frozenset(name for name, _, what in named if what in ("clean", "process"))


class WorkSums(msgspec.Struct, frozen=True, kw_only=True):
    """What work has used, and how large its change is. None: not known."""

    turns: int | None = None
    tokens: Tokens | None = None
    cost: Cost = Cost()
    files_changed: int | None = None
    lines_added: int | None = None
    lines_removed: int | None = None
    waited_seconds: float = 0.0
    """From when it was added, or its attempt before had ended, to the start of each attempt."""
    parked_seconds: float = 0.0
    """The part of it that was spent waiting for a quota window."""
    ran_seconds: float = 0.0
    lost_tokens: int = 0
    """Context that was paid again after parks, because the provider's cache had forgotten it."""
    lost_tokens_estimated: int = 0
    """The part of it that no event has reported: the size of the conversation stands for it."""


class UnitResult(WorkSums, frozen=True, kw_only=True, omit_defaults=True):
    """Everything known about the work of a unit. None: not known, or not yet."""

    agent: str | None = None
    model: str | None = None
    host: str | None = None
    is_remote: bool = False
    """Whether `host` is the name of a host with a worker. Else it is the machine of an engine."""
    answer: str | None = None
    """The final answer of the agent, bounded by who stores it."""
    workspace: str | None = None
    branch: str | None = None
    base: str | None = None
    commit: str | None = None
    repository: str | None = None
    git: GitSettings | None = None
    """Of the repository, as they were when the plan was added; None for a copy."""
    uncommitted: tuple[str, ...] | None = None
    """Included files that git does not ignore. They are never committed. None: not known."""
    checks: tuple[CheckRound, ...] = ()
    feedback: str | None = None
    """The prompt of the next round, after a failed check."""
    carried: Carried = Carried()
    is_preparing: bool = False
    """Whether its workspace is being made or set up: the session of its attempt has not begun."""
    port_base: int | None = None
    """The first of the ports that only this workspace uses, while the unit runs."""
    session_end: SessionEnd | None = None
    """Set while the work of an ended session is checked or delivered."""
    deliveries: int = 0
    """How often the delivery of this attempt has failed."""
    unbegun_checks: int = 0
    """How often the check of this attempt was ordered, but began on no host. Such orders are no rounds."""

    context_tokens: int | None = None
    """The size of its conversation: what its latest request sent, cached or not."""

    end_request: EndRequest | None = None
    """Set while a session runs that is to end at its next turn. A later attempt is not meant by it."""

    def end_request_of(self, attempt_id: str | None) -> EndRequest | None:
        """Return the request to end this attempt, if there is one."""
        request = self.end_request
        return request if request is not None and request.attempt_id == attempt_id else None

    def without_work(self) -> "UnitResult":
        """Return the result of a unit that starts over: what it has used stays, its work is forgotten."""
        empty = UnitResult()
        return msgspec.structs.replace(self, **{name: getattr(empty, name) for name in _OF_THE_WORK})

    def with_work_of(self, stored: "UnitResult") -> "UnitResult":
        """Return what this result says was used, and the work of the stored one: that may have been forgotten."""
        return msgspec.structs.replace(self, **{name: getattr(stored, name) for name in _OF_THE_WORK})

    def without_texts(self) -> "UnitResult":
        """Return the result as lists show it: without its answer, the output of its checks and its feedback."""
        checks = tuple(msgspec.structs.replace(check, tail=None) for check in self.checks)
        return msgspec.structs.replace(self, answer=None, checks=checks, feedback=None)


_OF_THE_WORK = (
    "answer",
    "workspace",
    "branch",
    "base",
    "commit",
    "repository",
    "git",
    "uncommitted",
    "files_changed",
    "lines_added",
    "lines_removed",
    "checks",
    "feedback",
    "port_base",
    "deliveries",
    "unbegun_checks",
    "context_tokens",
)
"""The fields that say what the unit has made, and where."""
