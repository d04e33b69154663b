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
    """Whether that attempt met a spent quota window."""


class UnitResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything known about the work of a unit. None: not known, or not yet."""

    agent: str | None = None
    model: str | None = None
    host: str | None = None
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

    def without_texts(self) -> "UnitResult":
        """Return the result as lists show it: without its answer, the output of its checks and its feedback."""
        checks = tuple(msgspec.structs.replace(check, tail="") for check in self.checks)
        return msgspec.structs.replace(self, answer=None, checks=checks, feedback=None)
