"""What the events of one agent run state beside limits, and what is known of the whole run.

Here: values (conversation, tokens, payer, retries, how a turn ended), and the small part of an event that is decoded
for every line. Never here: bytes, text, or how one CLI writes any of this.
"""

from typing import Literal

import msgspec

from paceline.core.values.tokens import Tokens

MOST_ANSWER_BYTES = 16_384
"""What is kept of an answer: many pages of text, and small enough to store for each of 100,000 units."""
_CUT = " […]"
AuthMode = Literal["subscription", "api_key", "overage"]
Trouble = Literal["rate_limit", "quota_window", "overloaded", "billing", "auth", "unreachable"]
Outcome = Literal[
    "success",
    "failed",
    "interrupted",
    "rate_limit",
    "quota_window",
    "overloaded",
    "billing",
    "auth",
    "unreachable",
    "denied",
]
DenialCause = Literal["permission", "sandbox", "untrusted"]
"""What refused a tool call: the CLI's permission rules, a read-only sandbox, or a folder that was never trusted."""


class MessageUsage(msgspec.Struct, gc=False):
    """Tokens of one model message."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        """All tokens that the message used. Cache reads are left out because they count towards no limit."""
        return self.input_tokens + self.cache_creation_input_tokens + self.output_tokens

    @property
    def tokens(self) -> Tokens:
        """The same by kind."""
        return Tokens(
            input=self.input_tokens,
            output=self.output_tokens,
            cache_read=self.cache_read_input_tokens,
            cache_write=self.cache_creation_input_tokens,
        )


class MessageHead(msgspec.Struct, gc=False):
    """The small part of a model message."""

    id: str = ""
    model: str = ""
    usage: MessageUsage | None = None


class ItemHead(msgspec.Struct, gc=False):
    """The small part of an item: a piece of the agent's work, or an error."""

    type: str = ""


class Head(msgspec.Struct, gc=False):
    """The few members that separate an event with news from one without. The decoder skips all others unread."""

    type: str = ""
    role: str = ""
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    item: ItemHead | None = None
    message: MessageHead | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended, according to the CLI itself."""

    ok: bool
    interrupted: bool = False
    status: int | None = None


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the CLI did not let the agent make."""

    tool: str = ""
    cause: DenialCause = "permission"
    call: str = ""
    """The CLI's name for the call. A call that several events report counts once."""


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the CLI counts them, by model ('' where it names none)."""

    by_model: dict[str, Tokens]
    reach: Literal["turn", "run", "conversation"] = "turn"
    """What is counted: the turn that ended, the run so far, or the whole conversation, earlier runs included."""
    is_request: bool = False
    """Whether it is exactly one request of the agent, so that its input is the size of the conversation."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one event states beside limits; None where it states nothing."""

    session_id: str | None = None
    auth_mode: AuthMode | None = None
    turn_tokens: int | None = None
    """Tokens of the turn that ended."""
    run_tokens: int | None = None
    """Tokens of the whole run so far. Better than the sum of its turns, which leaves sub-agents out."""
    usage: ReportedUsage | None = None
    model: str | None = None
    model_turns: int | None = None
    """How often the model was asked, in the turn that ended."""
    answer: str | None = None
    """What the agent said last."""
    status: int | None = None
    is_retry: bool = False
    ending: Ending | None = None
    is_unreachable: bool = False
    """Whether it reports that nobody answered."""
    is_window_open: bool | None = None
    """True: the provider refused a call although its windows are open. The CLI's sentence then blames one wrongly."""
    error: str | None = None
    """The CLI's own words for what went wrong."""
    denials: tuple[Denial, ...] = ()
    lists_denials: bool = False
    """Whether the event is the CLI's own list of all denials: an empty one means that there were none."""


NO_FACTS = Facts()


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What a text channel states about the run as a whole."""

    session_id: str | None = None
    tokens: int | None = None
    is_interrupted: bool = False
    """Whether its last line reports that the run was stopped."""


NO_TRANSCRIPT = Transcript()


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by model ('' where the CLI names none). `is_conversation`: those of earlier runs of it are included."""

    by_model: dict[str, Tokens]
    is_conversation: bool = False


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the latest request of the agent itself, as its CLI counted them. Sub-agents do not count."""

    first: Tokens
    last: Tokens

    @property
    def context(self) -> int:
        """The size of the conversation: what the latest request sent, cached or not."""
        return self.last.sent

    @property
    def uncached_first(self) -> int:
        """What the first request sent that was in no cache: after a resume, the context that is paid again."""
        return self.first.input + self.first.cache_write


class RunConclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown of a run, under the names of `StreamReader`."""

    outcome: Outcome | None = None
    session_id: str | None = None
    tokens: int | None = None
    auth_mode: AuthMode | None = None
    turns: int = 0
    denials: int = 0
    denial_reason: str | None = None
    failure_text: str | None = None


class RunSummary(RunConclusion, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of `StreamReader`, under the same names."""

    usage: RunUsage | None = None
    requests: Requests | None = None
    model: str | None = None
    model_turns: int | None = None
    answer: str | None = None
    has_answered: bool = False
    turn_ends: int = 0
    retries: int = 0


def bounded_answer(text: str | None) -> str | None:
    """Return the text without space around it, cut to what is kept of an answer. None if nothing is left."""
    if not text:
        return None
    text = text.strip()
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MOST_ANSWER_BYTES:
        text = encoded[: MOST_ANSWER_BYTES - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT
    return text or None
