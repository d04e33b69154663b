"""One session: its output, and what that means while it runs.

Here: decisions about one session. Never here: its outcome (`conclusion.py`), which unit runs next, or the store.
"""

from collections.abc import Sequence

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account, split_login
from paceline.core import Ticket
from paceline.core.signals import (
    AuthFailed,
    BillingStop,
    Overloaded,
    PlatformLimit,
    QuotaClosed,
    RateLimited,
    Signal,
    Succeeded,
    Unreachable,
)
from paceline.core.unit_lifecycle import AttemptOutcome, Ending
from paceline.core.values.validation import outside_seconds
from paceline.executors import Handle
from paceline.hosts.leader.host import SessionOutput
from paceline.store import Campaign, Unit
from paceline.store.unit_result import EndRequest

LONGEST_WAIT_LEFT_TO_THE_AGENT = 60.0
"""A session that waits longer blocks a slot without working, so it is ended and resumed later."""
MOST_RETRIES_LEFT_TO_THE_AGENT = 2
"""More refusals in a row mean that the agent's own backoff is too short for this limit."""
UNKNOWN_WAIT_SECONDS = 30.0
"""The wait after a refusal that names no time: the same as the default pause of a scope."""
LOGIN_SIGNALS = (BillingStop, AuthFailed)
LASTING_SIGNALS = (QuotaClosed, BillingStop, AuthFailed)
"""Signals that still hold when they are read again after a restart."""


class LiveSession:
    """A running unit: its ticket, its process, its reader, and the outcome it is being ended with, if it is."""

    def __init__(
        self,
        *,
        unit: Unit,
        campaign: Campaign,
        profile: AgentProfile,
        account: Account | None,
        ticket: Ticket,
        handle: Handle,
        output: SessionOutput,
        is_resumed: bool,
    ) -> None:
        self.unit = unit
        self.campaign = campaign
        self.profile = profile
        self.account = account
        self.ticket = ticket
        self.handle = handle
        self.output = output
        self.is_resumed = is_resumed
        """Whether it continues the conversation of the unit: not if that is on another machine."""
        self.ending: AttemptOutcome | None = None
        self.has_answered = False
        self.is_conversation_gone = False
        """Whether the CLI does not know the conversation that it was to resume."""
        self.stop_asked_at: float | None = None
        self.is_alone_in_fresh_window = False
        self.concluded: AttemptOutcome | None = None
        self._is_billed = False
        self.login_trouble: type[AuthFailed | BillingStop] | None = None
        """What kind of refusal of its login was seen."""
        self._counted_tokens = 0
        self.last_wait: float | None = None
        self._is_unreachable = False
        self._turn_ends_before: int | None = None
        """Turn ends that count no more for a request to end."""

    @property
    def scope(self) -> str | None:
        """The provider path that it runs on, or None without an account."""
        return self.ticket.scopes[-1] if self.account is not None else None

    @property
    def reported_scope(self) -> str:
        """The scope of its signals: its provider path, or else its campaign. Nobody knows what a command talks to."""
        return self.scope or f"campaign:{self.campaign.name}"

    @property
    def program_scope(self) -> str:
        """The scope of what every session with the same program meets: an agent, or the campaign of a command."""
        return f"agent:{self.profile.name}" if self.profile.start else f"campaign:{self.campaign.name}"

    @property
    def has_payer(self) -> bool:
        """Whether a login pays for it. A plan's own command may fail anywhere, which says nothing about a login."""
        return self.account is not None or bool(self.profile.start)

    @property
    def payer(self) -> str:
        """Whose quota it uses: the id of an account, or its campaign."""
        return self.account.id if self.account is not None else f"campaign:{self.campaign.name}"

    @property
    def host(self) -> str:
        """The host that it runs on; '' is the machine of the engine."""
        return split_login(self.unit.account or "")[1]

    @property
    def conversation(self) -> str | None:
        """The conversation that can be resumed: one that had begun, in this attempt or in one before."""
        if not self.profile.can_resume or self.is_conversation_gone:
            return None
        return (self.output.facts.session_id if self.has_answered else None) or self.unit.conversation_id

    def read(self, now: float) -> list[Signal]:
        """Read a piece of the new output. Returns the signals in it, dated when it was written.

        The engine before reported most of what was printed before the session was adopted.
        """
        is_old = self.output.is_catching_up
        signals = self.output.read(now)
        if not self.has_answered and (self.output.facts.has_answered or self.output.facts.tokens):
            self.has_answered = True
            signals.append(Succeeded())
        return self.signed(self._news(signals) if is_old else signals)

    def _news(self, signals: list[Signal]) -> list[Signal]:
        """Return what still holds of earlier output. Its tokens do not count: the engine before counted them."""
        self.new_tokens()
        return [signal for signal in signals if isinstance(signal, LASTING_SIGNALS)]

    def new_tokens(self) -> int:
        """Return the tokens that it used since the last call."""
        counted, self._counted_tokens = self._counted_tokens, _attempt_tokens(self, self._counted_tokens)
        return self._counted_tokens - counted

    def signed(self, signals: list[Signal]) -> list[Signal]:
        """Return the signals that count, with the ticket they came from."""
        if not signals:
            return []
        counted = counted_signals(signals, has_payer=self.has_payer)
        return [msgspec.structs.replace(signal, ticket=self.ticket.id) for signal in counted]

    # -- while it runs -----------------------------------------------------------------------

    def judge(self, signal: Signal, now: float) -> None:
        """Decide whether the signal ends the session. Short waits are left to the CLI, while its scope is paused."""
        match signal:
            case QuotaClosed():
                self._end("parked", "the quota window is spent", signal.resets_at)
            case Unreachable():
                self._is_unreachable = True
            case BillingStop() | AuthFailed():
                self.login_trouble = type(signal)
                self._end("account_stopped", signal.detail or "the account was refused")
            case PlatformLimit():
                self._end("refused", f"the platform's own limit ({signal.in_use}/{signal.limit})")
            case RateLimited() | Overloaded():
                self._judge_refusal(signal, now)

    def leave_reserve(self, reached: tuple[str, float] | None) -> None:
        """Park the session if only a window's reserve is left. Its conversation can be resumed."""
        if reached is not None:
            window, resets_at = reached
            self._end("parked", f"the rest of the {window} window is kept in reserve", resets_at)

    def ask_end(self, unit: Unit) -> None:
        """Take the unit with a stored request to end it: a turn that ends from now on is the last.

        Without a request the last one was withdrawn.
        """
        if unit.result.end_request is None:
            self._turn_ends_before = None
        elif self.unit.result.end_request_of(self.unit.attempt_id) is None:
            self._turn_ends_before = self.output.facts.turn_ends
        self.unit = unit

    def check_turn(self) -> None:
        """End it at the first turn end after the request, if its conversation can be resumed and it has not finished.

        What it printed before it was adopted counts no more: it may be long past those turn ends.
        """
        request = self.unit.result.end_request_of(self.unit.attempt_id)
        if request is None:
            return
        facts = self.output.facts
        if self._turn_ends_before is None or self.output.is_catching_up:
            self._turn_ends_before = facts.turn_ends
        elif facts.turn_ends > self._turn_ends_before and self.conversation is not None and not facts.turns:
            outcome = outcome_of_request(request)
            self._end(outcome.ending, outcome.reason, outcome.resume_at)

    def check_retries(self, now: float) -> None:
        """End a session that is refused too often in a row. Such retries carry no new signal."""
        if self.output.facts.retries > MOST_RETRIES_LEFT_TO_THE_AGENT and not self.output.is_catching_up:
            if self._is_unreachable:
                self._end("unreachable", f"nobody answered {self.output.facts.retries} times in a row")
                return
            wait = self.last_wait if self.last_wait is not None else UNKNOWN_WAIT_SECONDS
            self._end("refused", f"refused {self.output.facts.retries} times in a row", now + wait)

    def _judge_refusal(self, signal: RateLimited | Overloaded, now: float) -> None:
        self.last_wait, self._is_unreachable = outside_seconds(signal.retry_after), False
        wait = self.last_wait if self.last_wait is not None else UNKNOWN_WAIT_SECONDS
        if wait > LONGEST_WAIT_LEFT_TO_THE_AGENT or not self.has_answered:
            what = "rate limited" if isinstance(signal, RateLimited) else "the provider is overloaded"
            self._end("refused", f"{what}, asked to wait {wait:g} s", now + wait)

    def check_payer(self) -> str | None:
        """End a session that bills tokens instead of its subscription. Returns what is wrong, once."""
        if self.account is None or self.account.kind != "subscription" or self._is_billed:
            return None
        if self.account.is_implicit and self.campaign.allow_metered:
            return None
        if self.output.facts.auth_mode not in ("api_key", "overage"):
            return None
        self._is_billed, self.login_trouble = True, BillingStop
        billed = "an API key" if self.output.facts.auth_mode == "api_key" else "overage"
        reason = f"{self.account.id} is a subscription, but the agent bills {billed}"
        self._end("account_stopped", reason)
        return reason

    def _end(self, ending: Ending, reason: str, resume_at: float | None = None) -> None:
        """Set the outcome to end with. The first one counts, but a spent window replaces a refusal."""
        if self.ending is None or (self.ending.ending == "refused" and ending == "parked"):
            self.ending = AttemptOutcome(ending=ending, reason=reason, resume_at=resume_at)


def _attempt_tokens(session: LiveSession, counted_before: int) -> int:
    """Return the tokens of this attempt. Some CLIs count the attempts before, in the same conversation, as well."""
    facts, unit = session.output.facts, session.unit
    tokens = facts.tokens or 0
    earlier = unit.result.carried.conversation_tokens
    if not session.is_resumed or not earlier or facts.usage is None or not facts.usage.is_conversation:
        return tokens
    counted = sum(each.total - each.cache_read for each in facts.usage.by_model.values())
    before = sum(each.total - each.cache_read for each in earlier.values())
    return max(counted_before, counted - before)


def outcome_of_request(request: EndRequest) -> AttemptOutcome:
    """Return the outcome of an attempt that was ended as somebody had asked for."""
    if request.is_held:
        return AttemptOutcome(ending="barred", reason=request.reason)
    if request.is_landing and request.resume_at is not None:
        return AttemptOutcome(ending="parked", reason=request.reason, resume_at=request.resume_at)
    return AttemptOutcome(ending="yielded", reason=request.reason, resume_at=request.resume_at)


def counted_signals(signals: Sequence[Signal], *, has_payer: bool) -> list[Signal]:
    """Return the signals that count. Without a payer, words such as "401 Unauthorized" say nothing about a login."""
    return [each for each in signals if has_payer or not isinstance(each, LOGIN_SIGNALS)]
