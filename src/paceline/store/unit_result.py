"""What is known about the work of a unit over all its attempts: its answer, its cost, its change, its checks.

Here: the values. Never here: how they are measured, or how they are stored.
"""

import msgspec

from paceline.core.values.tokens import Tokens


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars, or None where they are not known. A subscription bills nothing for a unit: its cost is imputed."""

    billed: float | None = None
    imputed: float | None = None


class CheckRound(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the check of a unit. `tail` is the end of its output, `reason` why it did not end by itself."""

    exit_code: int | None
    seconds: float
    tail: str
    reason: str | None = None


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
    """Whether the next answer begins a new conversation, because the last one was too large to resume."""


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the agent's session ended whose work is being checked or delivered: what the outcome of its attempt needs."""

    account: str | None = None
    conversation_id: str | None = None
    exit_code: int | None = None
    denials: int = 0
    warnings: tuple[str, ...] = ()


class EndRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The wish that an attempt ends at its next turn. The unit may continue at `resume_at`, or with its next slot."""

    attempt_id: str
    reason: str
    resume_at: float | None = None
    is_held: bool = False
    """Whether the unit is held then, until a person resumes it."""
    is_landing: bool = False
    """Whether its quota window is about to close: the unit is parked then."""


class UnitResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything known about the work of a unit. None: not known, or not yet."""

    agent: str | None = None
    model: str | None = None
    host: str | None = None
    is_remote: bool = False
    """Whether `host` is the name of a host with a worker. Else it is the machine of an engine."""
    turns: int | None = None
    tokens: Tokens | None = None
    cost: Cost = Cost()
    answer: str | None = None
    """The final answer of the agent, bounded by who stores it."""
    workspace: str | None = None
    branch: str | None = None
    base: str | None = None
    commit: str | None = None
    repository: str | None = None
    files_changed: int | None = None
    lines_added: int | None = None
    lines_removed: int | None = None
    checks: tuple[CheckRound, ...] = ()
    waited_seconds: float = 0.0
    """From when it was added, or its attempt before had ended, to the start of each attempt."""
    parked_seconds: float = 0.0
    """The part of it that was spent waiting for a quota window."""
    ran_seconds: float = 0.0
    feedback: str | None = None
    """The prompt of the next round, after a failed check."""
    carried: Carried = Carried()
    port_base: int | None = None
    """The first of the ports that only this workspace uses, while the unit runs."""
    session_end: SessionEnd | None = None
    """Set while the work of an ended session is checked or delivered."""
    deliveries: int = 0
    """How often the delivery of this attempt has failed."""

    context_tokens: int | None = None
    """The size of its conversation: what its latest request sent, cached or not."""
    lost_tokens: int = 0
    """Context that was paid again after parks, because the provider's cache had forgotten it."""
    lost_tokens_estimated: int = 0
    """The part of it that no event has reported: the size of the conversation stands for it."""

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

    def without_texts(self) -> "UnitResult":
        """Return the result as lists show it: without its answer, the output of its checks and its feedback."""
        checks = tuple(msgspec.structs.replace(check, tail="") for check in self.checks)
        return msgspec.structs.replace(self, answer=None, checks=checks, feedback=None)


_OF_THE_WORK = (
    "answer",
    "workspace",
    "branch",
    "base",
    "commit",
    "repository",
    "files_changed",
    "lines_added",
    "lines_removed",
    "checks",
    "feedback",
    "port_base",
    "session_end",
    "deliveries",
    "context_tokens",
)
"""The fields that say what the unit has made, and where."""
