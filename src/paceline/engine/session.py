"""One session: what its output means while it runs, and the outcome of its attempt when it is over.

Here: decisions about one session. Never here: which unit runs next, or the store.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from paceline.agents import AgentProfile
from paceline.agents.account import Account
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
from paceline.detect import StreamReader
from paceline.executors import Handle, SessionState
from paceline.store import Campaign, Unit

LONGEST_WAIT_LEFT_TO_THE_AGENT = 60.0
"""A session that waits longer blocks a slot without working, so it is ended and resumed later."""
MOST_RETRIES_LEFT_TO_THE_AGENT = 2
"""More refusals in a row mean that the agent's own backoff is too short for this limit."""
UNKNOWN_WAIT_SECONDS = 30.0
"""The wait after a refusal that names no time: the same as the default pause of a scope."""
TIME_LIMIT_EXIT_CODE = 124
"""The exit code of `timeout`, by which the reader knows that a run was ended at its limit of time."""
TRY_LATER_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h."""
CLOCK_SLACK_SECONDS = 2.0
"""How much older than the start of its attempt an output may be: file systems round times, some to two seconds."""
STOPPED_EARLY = "it was stopped before the agent ran"
CANNOT_WORK = "cannot work in "
TOO_LONG = ("Argument list too long", "pass long input on stdin")
_CANNOT_RUN = re.compile(r"cannot run '(?P<name>.*?)': (?P<why>.*)")
"""Messages of supervisors about agents that never ran."""
ENDED_WELL = ("success", "denied")
"""Outcomes of a run in which the agent says that it is done."""
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
        tz: str,
    ) -> None:
        self.unit = unit
        self.campaign = campaign
        self.profile = profile
        self.account = account
        self.ticket = ticket
        self.handle = handle
        self.reader = StreamReader(profile.provider, tz=tz)
        self.ending: AttemptOutcome | None = None
        self.has_answered = False
        self.stop_asked_at: float | None = None
        self.is_alone_in_fresh_window = False
        self.is_behind = False
        """Whether the last read found something: there may be more."""
        self.is_catching_up = False
        """Whether it reads what it printed before it was adopted. The engine before reported most of that."""
        self._concluded: AttemptOutcome | None = None
        self._is_billed = False
        self.login_trouble: type[AuthFailed | BillingStop] | None = None
        """What kind of refusal of its login was seen."""
        self._counted_tokens = 0
        self._last_wait: float | None = None
        self._is_unreachable = False

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
    def conversation(self) -> str | None:
        """The conversation that can be resumed: one that had begun, in this attempt or in one before."""
        if not self.profile.can_resume:
            return None
        return self.reader.session_id if self.has_answered and self.reader.session_id else self.unit.conversation_id

    def read(self, now: float) -> list[Signal]:
        """Read one piece of the new output of each channel. Returns the signals in it, dated when it was written."""
        signals: list[Signal] = []
        self.is_behind = False
        for channel in self.handle.channels:
            if chunk := self.handle.read_new(channel):
                self.is_behind = True
                written_at = self.handle.written_at(channel)
                seen_at = now if written_at is None else min(written_at, now)
                signals += self.reader.feed(chunk, channel=channel, seen_at=seen_at)
        if not self.has_answered and (self.reader.has_answered or self.reader.tokens):
            self.has_answered = True
            signals.append(Succeeded())
        return self._signed(self._news(signals) if self.is_catching_up else signals)

    def _news(self, signals: list[Signal]) -> list[Signal]:
        """Return what still holds of earlier output. Its tokens do not count: the engine before counted them."""
        self.new_tokens()
        self.is_catching_up = self.is_behind
        return [signal for signal in signals if isinstance(signal, LASTING_SIGNALS)]

    def new_tokens(self) -> int:
        """Return the tokens that it used since the last call."""
        counted, self._counted_tokens = self._counted_tokens, self.reader.tokens or 0
        return self._counted_tokens - counted

    def _signed(self, signals: list[Signal]) -> list[Signal]:
        """Return the signals that count, with the ticket they came from."""
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
        """Park the session if only a window's reserve is left and its conversation can be resumed."""
        if reached is not None and self.conversation is not None:
            window, resets_at = reached
            self._end("parked", f"the rest of the {window} window is kept in reserve", resets_at)

    def check_retries(self, now: float) -> None:
        """End a session that is refused too often in a row. Such retries carry no new signal."""
        if self.reader.retries > MOST_RETRIES_LEFT_TO_THE_AGENT and not self.is_catching_up:
            if self._is_unreachable:
                self._end("unreachable", f"nobody answered {self.reader.retries} times in a row")
                return
            wait = self._last_wait if self._last_wait is not None else UNKNOWN_WAIT_SECONDS
            self._end("refused", f"refused {self.reader.retries} times in a row", now + wait)

    def _judge_refusal(self, signal: RateLimited | Overloaded, now: float) -> None:
        self._last_wait, self._is_unreachable = signal.retry_after, False
        wait = signal.retry_after if signal.retry_after is not None else UNKNOWN_WAIT_SECONDS
        if wait > LONGEST_WAIT_LEFT_TO_THE_AGENT or not self.has_answered:
            what = "rate limited" if isinstance(signal, RateLimited) else "the provider is overloaded"
            self._end("refused", f"{what}, asked to wait {wait:g} s", now + wait)

    def check_payer(self) -> str | None:
        """End a session that bills tokens instead of its subscription. Returns what is wrong, once."""
        if self.account is None or self.account.kind != "subscription" or self._is_billed:
            return None
        if self.account.is_implicit and self.campaign.allow_metered:
            return None
        if self.reader.auth_mode not in ("api_key", "overage"):
            return None
        self._is_billed, self.login_trouble = True, BillingStop
        billed = "an API key" if self.reader.auth_mode == "api_key" else "overage"
        reason = f"{self.account.id} is a subscription, but the agent bills {billed}"
        self._end("account_stopped", reason)
        return reason

    def _end(self, ending: Ending, reason: str, resume_at: float | None = None) -> None:
        """Set the outcome to end with. The first one counts, but a spent window replaces a refusal."""
        if self.ending is None or (self.ending.ending == "refused" and ending == "parked"):
            self.ending = AttemptOutcome(ending=ending, reason=reason, resume_at=resume_at)

    # -- when it is over ---------------------------------------------------------------------

    def conclude(self, state: SessionState, now: float) -> tuple[AttemptOutcome, list[Signal]]:
        """Return the outcome of the attempt, and the signals of its end. All its output must have been read."""
        if self._concluded is not None:  # it could not be stored before
            return self._concluded, []
        at = now if state.ended_at is None else min(state.ended_at, now)
        exit_code = TIME_LIMIT_EXIT_CODE if self._waited_in_silence(state) else state.shell_code
        signals = self._signed(self.reader.close(exit_code=exit_code, seen_at=at))
        if self.reader.outcome not in ENDED_WELL:
            for signal in signals:
                self.judge(signal, at)
        is_done = self.reader.outcome in ENDED_WELL and state.cause == "exit"  # it may end well before it is stopped
        ending = None if is_done else self.ending
        outcome = ending or self._by_process(state) or self._by_its_own_account(state, at)
        self._concluded = msgspec.structs.replace(outcome, exit_code=state.shell_code, denials=self.reader.denials)
        return self._concluded, signals

    def _waited_in_silence(self, state: SessionState) -> bool:
        """Return whether it was ended at a limit of time before it had said anything."""
        return state.cause in ("timed_out", "stalled") and not self.has_answered

    def _by_process(self, state: SessionState) -> AttemptOutcome | None:
        """Return the outcome that the end of the process decides, if it does."""
        if state.phase == "not_started":
            return not_started_outcome(state.message)
        if state.phase == "lost" or state.cause in ("terminated", "stopped"):
            return AttemptOutcome(ending="lost", reason=state.message or "the session was ended from outside")
        if self._waited_in_silence(state) and self.reader.outcome != "failed":
            return None  # some CLIs wait for a spent quota without a word
        if state.cause == "timed_out":
            return AttemptOutcome(ending="failed", reason=f"took longer than its {self.campaign.timeout or 0:g} s")
        if state.cause == "stalled":
            return AttemptOutcome(ending="failed", reason="stalled: no output and no CPU time")
        if state.exit_code == TRY_LATER_EXIT_CODE:
            return AttemptOutcome(ending="try_later", reason="asked to be tried later (exit code 75)")
        return None

    def _by_its_own_account(self, state: SessionState, now: float) -> AttemptOutcome:
        match self.reader.outcome:
            case "success":
                return _checked_success(self.unit)
            case "denied":
                return self._denied()
            case "unreachable":
                return AttemptOutcome(ending="unreachable", reason=f"nobody answered: {self._failure(state)}")
            case "quota_window":
                return AttemptOutcome(ending="parked", reason="the quota window is spent")
            case "rate_limit" | "overloaded" as refused:
                wait = self._last_wait if self._last_wait is not None else UNKNOWN_WAIT_SECONDS
                return AttemptOutcome(ending="refused", reason=refused.replace("_", " "), resume_at=now + wait)
            case "billing" | "auth" as refused if self.has_payer:
                return AttemptOutcome(ending="account_stopped", reason=f"the account was refused ({refused})")
            case "interrupted":
                return AttemptOutcome(ending="lost", reason="interrupted from outside")
        return AttemptOutcome(ending="failed", reason=self._failure(state))

    def _failure(self, state: SessionState) -> str:
        how = f"signal {state.signal}" if state.signal is not None else f"exit code {state.exit_code}"
        words = self.reader.failure_text
        return f"{how}: {words}" if words else how

    def _denied(self) -> AttemptOutcome:
        """Hold a unit whose agent was not allowed to work, unless the plan accepts that."""
        reason = self.reader.denial_reason or "the agent was denied tool calls"
        if self.campaign.on_denied == "done":
            return msgspec.structs.replace(_checked_success(self.unit), warnings=(reason,))
        return AttemptOutcome(ending="denied", reason=reason)


def counted_signals(signals: Sequence[Signal], *, has_payer: bool) -> list[Signal]:
    """Return the signals that count. Without a payer, words such as "401 Unauthorized" say nothing about a login."""
    return [each for each in signals if has_payer or not isinstance(each, LOGIN_SIGNALS)]


def not_started_outcome(message: str) -> AttemptOutcome:
    """Return the outcome of an attempt whose agent never ran. Only what lies in the unit itself is a failure of it."""
    if message == STOPPED_EARLY:
        return AttemptOutcome(ending="lost", reason=message)
    if message.startswith(CANNOT_WORK) or message.endswith(TOO_LONG):
        return AttemptOutcome(ending="failed", reason=message)
    found = _CANNOT_RUN.match(message)
    if found is None:
        return AttemptOutcome(ending="not_started", reason=f"the agent could not be started: {message or 'no reason'}")
    why = "not found" if "No such file" in found["why"] else found["why"]
    return AttemptOutcome(ending="not_started", reason=f"the program {found['name']} could not be started: {why}")


def _checked_success(unit: Unit) -> AttemptOutcome:
    """Return success only if the output that the plan names was written since the conversation began."""
    output = unit.spec.output
    if output is None:
        return AttemptOutcome(ending="succeeded", reason="done")
    try:
        written = (Path(unit.spec.cwd) / output).stat()
    except OSError:
        return AttemptOutcome(ending="failed", reason=f"ended well, but {output} was not written")
    if not written.st_size:
        return AttemptOutcome(ending="failed", reason=f"ended well, but {output} is empty")
    # Files that were moved or copied with their times have only the time of their last change of state.
    if max(written.st_mtime, written.st_ctime) < (unit.begun_at or unit.started_at or 0.0) - CLOCK_SLACK_SECONDS:
        return AttemptOutcome(ending="failed", reason=f"ended well, but {output} is older than this attempt")
    return AttemptOutcome(ending="succeeded", reason="done")
