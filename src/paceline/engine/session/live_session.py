"""One attempt of a unit. Its session: its output, what that means while it runs, its outcome, and what that adds.

The outcome is what the end of the process and the words of its agent add up to. The result of a unit sums up its
attempts, with the price of parks: the context that the first request after one pays again, because no cache has it any
more. Here: decisions about one session. Never here: which unit runs next, or the store.
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Literal, NamedTuple

import msgspec

from paceline import errors
from paceline.agents import AgentProfile
from paceline.agents.account import Account, split_login
from paceline.agents.stream.record import is_conversation_gone
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
from paceline.core.values.scopes import CHECKS
from paceline.core.values.session_output import Tokens
from paceline.core.values.validation import outside_seconds
from paceline.engine.dispatch.placement import host_scope
from paceline.engine.settings import this_host
from paceline.errors import InvalidInput
from paceline.executors.interface import Handle, SessionState, exit_code_to_read, waited_in_silence
from paceline.hosts.leader.host import SessionOutput
from paceline.limiter.governor_driver import SEPARATOR
from paceline.settings.model import PriceList
from paceline.store import Campaign, Cost, Unit, UnitResult
from paceline.store.unit_result import Carried, EndRequest
from paceline.workspaces import WorkspaceLocation

LONGEST_WAIT_LEFT_TO_THE_AGENT = 60.0
"""A session that waits longer blocks a slot without working, so it is ended and resumed later."""
MOST_RETRIES_LEFT_TO_THE_AGENT = 2
"""More refusals in a row mean that the agent's own backoff is too short for this limit."""
UNKNOWN_WAIT_SECONDS = 30.0
"""The wait after a refusal that names no time: the same as the default pause of a scope."""
LOGIN_SIGNALS = (BillingStop, AuthFailed)
LASTING_SIGNALS = (QuotaClosed, BillingStop, AuthFailed)
"""Signals that still hold when they are read again after a restart."""

TRY_LATER_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h."""
NO_ROOM_SECONDS = 10.0
"""How long no session is started after the machine had no room for one: soon enough once a person has made some."""
TOO_LATE = "it could have started only after its leader, or its host, had lost its lease"
STOPPED_EARLY = "it was stopped before the agent ran"
CANNOT_WORK = "cannot work in "
TOO_LONG = ("Argument list too long", "pass long input on stdin")
_CANNOT_RUN = re.compile(r"cannot run '(?P<name>.*?)': (?P<why>.*)")
"""Messages of supervisors about agents that never ran."""
ENDED_WELL = ("success", "denied")
"""Outcomes of a run in which the agent says that it is done."""

SHORTEST_CACHE_SECONDS = 300.0
"""After a shorter wait the provider's cache still has the context: five minutes is the usual lifetime."""
BILLED_MODES = ("api_key", "overage")
"""What agents print about sessions whose tokens are billed, whatever the account."""

SETUP_SECONDS = 1800.0
"""How long a setup may take: installing the dependencies of a large repository takes minutes."""
DELIVERY_SECONDS = 600.0
"""How long a delivery may take: it pushes a branch and calls a web service."""
CHECK_TICKETS = "check"
"""The namespace of the tickets of checks and setups."""

CACHE_READ_WEIGHT = 0.1
"""What a token that is read from a cache counts in a window: a tenth, as its price."""
WEIGHT_OF_NEWS = 0.3
"""Weight of the latest turn in the mean of a session: three turns follow a conversation that grows."""
LONG_TURN = 1.5
"""A turn that is planned for is this much longer than the mean: few turns are longer, and waiting for one costs more
than parking a turn early."""
SHORTEST_TURN = 0.3
"""The least part of a turn that a session is expected to use until its end, however long the turn already lasts."""

TokensByModel = dict[str, Tokens]
Stage = Literal["find", "make", "setup", "finish", "work", "check", "commit", "deliver"]


class Attempt(msgspec.Struct, kw_only=True, eq=False):
    """An attempt of a unit, from its claim until its outcome is stored. `handle` or `job` is what runs for it."""

    unit: Unit
    campaign: Campaign
    account: Account | None = None
    ticket: Ticket
    """That of its session."""
    stage: Stage = "work"
    handle: Handle | None = None
    job: Future[object] | None = None
    folder: WorkspaceLocation | None = None
    """Set while its workspace is made."""
    was_lost: bool = False
    """Whether the workspace has been made again."""
    keeps_slots: bool = False
    """Whether its session begins as soon as the setup is over."""
    outcome: AttemptOutcome | None = None
    """Why its workspace could not be made."""
    losses: int = 0
    faults: int = 0
    retry_at: float = 0.0

    @property
    def is_preparing(self) -> bool:
        """Whether its workspace is being made. At `setup` without a handle it waits for a place."""
        return self.stage in ("find", "make", "setup", "finish")

    @property
    def is_at_work(self) -> bool:
        return self.handle is not None or self.job is not None

    @property
    def host(self) -> str:
        """The host that it runs on; '' is the machine of the engine."""
        return split_login(self.unit.account or "")[1]

    @property
    def command_ticket(self) -> Ticket:
        """The ticket of its setup or check."""
        name, priority = self.campaign.name, self.campaign.priority
        suffix = "-setup" if self.is_preparing else ""
        ticket_id = f"{CHECK_TICKETS}{SEPARATOR}{self.unit.attempt_id}{suffix}"
        # On another host it takes a place of that host: the CPUs of this machine do not matter there.
        scope = host_scope(self.host) if self.host else CHECKS
        return Ticket(ticket_id, (scope,), group=name, priority=priority, leased=False)

    @property
    def command_id(self) -> str:
        """The attempt id of its next command. Every run of a check or a delivery has its own."""
        if self.stage == "setup":
            return f"{self.unit.attempt_id}-setup"
        result = self.unit.result
        number = len(result.checks) + result.unbegun_checks if self.stage == "check" else result.deliveries
        return f"{self.unit.attempt_id}-{self.stage}{number + 1}"

    @property
    def limit_seconds(self) -> float:
        return {"setup": SETUP_SECONDS, "check": self.campaign.check_timeout}.get(self.stage, DELIVERY_SECONDS)


class Turn(NamedTuple):
    """What a turn uses."""

    tokens: float = 0.0
    seconds: float = 1.0


class LiveSession(Attempt, kw_only=True, eq=False):
    """An attempt whose agent runs: its process, its reader, and the outcome it is being ended with, if it is."""

    profile: AgentProfile
    handle: Handle
    output: SessionOutput
    ending: AttemptOutcome | None = None
    has_answered: bool = False
    is_conversation_gone: bool = False
    """Whether the CLI does not know the conversation that it was to resume."""
    stop_asked_at: float | None = None
    is_alone_in_fresh_window: bool = False
    concluded: AttemptOutcome | None = None
    login_trouble: type[AuthFailed | BillingStop] | None = None
    """What kind of refusal of its login was seen."""
    last_wait: float | None = None
    used: float = 0.0
    """The tokens of its window that it has used, by what is metered."""
    turn: Turn | None = None
    """The mean of its turns."""
    _metered: object = None
    _last_end: tuple[int, float, float] | None = None
    """The number of turn ends, when the last one was noticed, and what was used by then."""
    _is_billed: bool = False
    _counted_tokens: int = 0
    _is_unreachable: bool = False
    _turn_ends_before: int | None = None
    """Turn ends that count no more for a request to end."""

    @property
    def is_resumed(self) -> bool:
        """Whether it continues the conversation of the unit."""
        return self.unit.conversation_id is not None and self.profile.can_resume

    @property
    def scope(self) -> str | None:
        """The provider path that it runs on, or None without an account."""
        return self.ticket.scopes[-1] if self.account is not None else None

    @property
    def reported_scope(self) -> str:
        """The scope of its signals: its provider path, or else its campaign. Nobody knows what a command talks to."""
        return self.scope or f"campaign:{self.campaign.name}"

    @property
    def has_payer(self) -> bool:
        """Whether a login pays for it. A plan's own command may fail anywhere, which says nothing about a login."""
        return self.account is not None or bool(self.profile.start)

    @property
    def payer(self) -> str:
        """Whose quota it uses: the id of an account, or its campaign."""
        return self.account.id if self.account is not None else f"campaign:{self.campaign.name}"

    @property
    def wait_seconds(self) -> float:
        """How long to wait after its last refusal."""
        return UNKNOWN_WAIT_SECONDS if self.last_wait is None else self.last_wait

    @property
    def conversation(self) -> str | None:
        """The conversation that can be resumed: one that had begun, in this attempt or in one before."""
        if not self.profile.can_resume or self.is_conversation_gone:
            return None
        return (self.output.facts.session_id if self.has_answered else None) or self.unit.conversation_id

    def read(self, now: float) -> list[Signal]:
        """Read a piece of the output. Returns its signals; of what an engine before has read, only those that last."""
        is_old = self.output.is_catching_up
        signals = self.output.read(now)
        if not self.has_answered and (self.output.facts.has_answered or self.output.facts.tokens):
            self.has_answered = True
            signals.append(Succeeded())
        if is_old:
            self.new_tokens()
            signals = [signal for signal in signals if isinstance(signal, LASTING_SIGNALS)]
        return self.signed(signals)

    def new_tokens(self) -> int:
        """Return the tokens used since the last call. Some CLIs count all attempts of a conversation together."""
        facts, before = self.output.facts, self._counted_tokens
        earlier = self.unit.result.carried.conversation_tokens
        self._counted_tokens = facts.tokens or 0
        if self.is_resumed and earlier and facts.usage is not None and facts.usage.is_conversation:
            counted = sum(each.total - each.cache_read for each in facts.usage.by_model.values())
            counted -= sum(each.total - each.cache_read for each in earlier.values())
            self._counted_tokens = max(before, counted)
        return self._counted_tokens - before

    def meter(self, now: float) -> float:
        """Take the tokens that a window counts, and measure its turns. Returns how many tokens are new."""
        facts, before = self.output.facts, self.used
        if facts.requests is not None and facts.requests is not self._metered:
            self._metered = facts.requests
            spent = facts.usage.by_model.values() if facts.usage is not None and not facts.usage.is_conversation else ()
            self.used = max(self.used, sum(window_tokens(each) for each in spent))
        if self._last_end is not None and facts.turn_ends > self._last_end[0]:
            count_before, ended_at, used = self._last_end
            count = facts.turn_ends - count_before
            turn = Turn((self.used - used) / count, (now - ended_at) / count)
            if self.turn is not None:
                old, new = 1 - WEIGHT_OF_NEWS, WEIGHT_OF_NEWS
                turn = Turn(old * self.turn.tokens + new * turn.tokens, old * self.turn.seconds + new * turn.seconds)
            self.turn, self._last_end = turn, (facts.turn_ends, now, self.used)
        elif self._last_end is None and facts.turn_ends:  # the first turn pays for a context without a cache
            self._last_end = (facts.turn_ends, now, self.used)
        return self.used - before

    @property
    def has_turns(self) -> bool:
        return self._last_end is not None

    def turn_left(self, turn: float) -> float:
        """Return what is left of the present turn, if turns use so much."""
        begun = 0.0 if self._last_end is None else self.used - self._last_end[2]
        return max(SHORTEST_TURN * turn, LONG_TURN * turn - begun)

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
                self.last_wait, self._is_unreachable = outside_seconds(signal.retry_after), False
                if self.wait_seconds > LONGEST_WAIT_LEFT_TO_THE_AGENT or not self.has_answered:
                    what = "rate limited" if isinstance(signal, RateLimited) else "the provider is overloaded"
                    self._end("refused", f"{what}, asked to wait {self.wait_seconds:g} s", now + self.wait_seconds)

    def leave_reserve(self, reached: tuple[str, float] | None) -> None:
        """Park the session if only a window's reserve is left. Its conversation can be resumed."""
        if reached is not None:
            window, resets_at = reached
            self._end("parked", f"the rest of the {window} window is kept in reserve", resets_at)

    def ask_end(self, unit: Unit) -> None:
        """Take the unit with a stored request to end it at the next turn end, or with one that was withdrawn."""
        if unit.result.end_request is None:
            self._turn_ends_before = None
        elif self.unit.result.end_request_of(self.unit.attempt_id) is None:
            self._turn_ends_before = self.output.facts.turn_ends
        self.unit = unit

    def check_turn(self) -> None:
        """End it at the first turn end since the request, or since its adoption, if it can be resumed."""
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
        retries = self.output.facts.retries
        if retries <= MOST_RETRIES_LEFT_TO_THE_AGENT or self.output.is_catching_up:
            return
        if self._is_unreachable:
            self._end("unreachable", f"nobody answered {retries} times in a row")
        else:
            self._end("refused", f"refused {retries} times in a row", now + self.wait_seconds)

    def check_payer(self) -> str | None:
        """End a session that bills tokens instead of its subscription. Returns what is wrong, once."""
        mode = self.output.facts.auth_mode
        if self.account is None or self.account.kind != "subscription" or self._is_billed or mode not in BILLED_MODES:
            return None
        if self.account.is_implicit and self.campaign.allow_metered:
            return None
        self._is_billed, self.login_trouble = True, BillingStop
        billed = "an API key" if mode == "api_key" else "overage"
        reason = f"{self.account.id} is a subscription, but the agent bills {billed}"
        self._end("account_stopped", reason)
        return reason

    def _end(self, ending: Ending, reason: str, resume_at: float | None = None) -> None:
        """Set the outcome to end with. The first one counts, but a spent window replaces a refusal."""
        if self.ending is None or (self.ending.ending == "refused" and ending == "parked"):
            self.ending = AttemptOutcome(ending=ending, reason=reason, resume_at=resume_at)


def window_tokens(tokens: Tokens) -> float:
    """Return the tokens as a window counts them."""
    return tokens.input + tokens.cache_write + tokens.output + CACHE_READ_WEIGHT * tokens.cache_read


def with_result(unit: Unit, **fields: object) -> Unit:
    """Return the unit with some fields of its result changed."""
    result: UnitResult = msgspec.structs.replace(unit.result, **fields)
    return msgspec.structs.replace(unit, result=result)


def outcome_of_request(request: EndRequest) -> AttemptOutcome:
    """Return the outcome of an attempt that was ended as somebody had asked for."""
    if request.is_held:
        return AttemptOutcome(ending="barred", reason=request.reason)
    is_parked = request.is_landing and request.resume_at is not None
    ending: Ending = "parked" if is_parked else "yielded"
    return AttemptOutcome(ending=ending, reason=request.reason, resume_at=request.resume_at)


def counted_signals(signals: Sequence[Signal], *, has_payer: bool) -> list[Signal]:
    """Return the signals that count. Without a payer, words such as "401 Unauthorized" say nothing about a login."""
    return [each for each in signals if has_payer or not isinstance(each, LOGIN_SIGNALS)]


def conclude_attempt(session: LiveSession, state: SessionState, now: float) -> tuple[AttemptOutcome, list[Signal]]:
    """Return the outcome of the attempt, and the signals of its end. All its output must have been read."""
    if session.concluded is not None:  # it could not be stored before
        return session.concluded, []
    at = now if state.ended_at is None else min(state.ended_at, now)
    exit_code = exit_code_to_read(state, has_answered=session.has_answered)
    signals = session.signed(session.output.close(exit_code, at))
    if session.output.facts.outcome not in ENDED_WELL:
        for signal in signals:
            session.judge(signal, at)
    facts = session.output.facts
    is_done = facts.outcome in ENDED_WELL and state.cause == "exit"  # it may end well before it is stopped
    outcome = (None if is_done else session.ending) or _by_process(session, state, at)
    outcome = outcome or _without_conversation(session) or _by_words(session, state, at)
    warnings = session.unit.result.carried.warnings + outcome.warnings
    session.concluded = msgspec.structs.replace(
        outcome, exit_code=state.shell_code, denials=facts.denials, warnings=warnings
    )
    return session.concluded, signals


def _by_process(session: LiveSession, state: SessionState, now: float) -> AttemptOutcome | None:
    if state.phase == "not_started":
        if (error := session.output.start_error) is not None:
            return start_error_outcome(error, state.message, now)
        return not_started_outcome(state.message, is_elsewhere=bool(session.host))
    if state.phase == "lost" or state.cause in ("terminated", "stopped"):
        return AttemptOutcome(ending="lost", reason=state.message or "the session was ended from outside")
    if waited_in_silence(state, has_answered=session.has_answered) and session.output.facts.outcome != "failed":
        return None  # some CLIs wait for a spent quota without a word
    if state.cause == "timed_out":
        return AttemptOutcome(ending="failed", reason=f"took longer than its {session.campaign.timeout or 0:g} s")
    if state.cause == "stalled":
        return AttemptOutcome(ending="failed", reason="stalled: no output and no CPU time")
    if state.exit_code == TRY_LATER_EXIT_CODE:
        return AttemptOutcome(ending="try_later", reason="asked to be tried later (exit code 75)")
    return None


def _by_words(session: LiveSession, state: SessionState, now: float) -> AttemptOutcome:
    match session.output.facts.outcome:
        case "success":
            return _checked_success(session)
        case "denied":
            reason = session.output.facts.denial_reason or "the agent was denied tool calls"
            if session.campaign.on_denied == "done":
                return msgspec.structs.replace(_checked_success(session), warnings=(reason,))
            return AttemptOutcome(ending="denied", reason=reason)
        case "unreachable":
            return AttemptOutcome(ending="unreachable", reason=f"nobody answered: {_failure(session, state)}")
        case "quota_window":
            return AttemptOutcome(ending="parked", reason="the quota window is spent")
        case "rate_limit" | "overloaded" as refused:
            resume_at = now + session.wait_seconds
            return AttemptOutcome(ending="refused", reason=refused.replace("_", " "), resume_at=resume_at)
        case "billing" | "auth" as refused if session.has_payer:
            return AttemptOutcome(ending="account_stopped", reason=f"the account was refused ({refused})")
        case "interrupted":
            return AttemptOutcome(ending="lost", reason="interrupted from outside")
    return AttemptOutcome(ending="failed", reason=_failure(session, state))


def _without_conversation(session: LiveSession) -> AttemptOutcome | None:
    """Begin a unit again whose conversation its CLI no longer has. The work itself has not failed."""
    facts, lost = session.output.facts, session.unit.conversation_id
    has_failed = facts.outcome in ("failed", "interrupted") and not session.has_answered
    if lost is None or not has_failed or not is_conversation_gone(facts.failure_text):
        return None
    session.is_conversation_gone = True
    reason = f"its conversation is gone ({facts.failure_text}), so it begins again"
    warning = f"its conversation {lost} was gone when it was to be resumed, so it was begun again"
    return AttemptOutcome(ending="yielded", reason=reason, warnings=(warning,))


def _failure(session: LiveSession, state: SessionState) -> str:
    how = f"signal {state.signal}" if state.signal is not None else f"exit code {state.exit_code}"
    words = session.output.facts.failure_text
    return f"{how}: {words}" if words else how


def start_error_outcome(error: str, message: str, now: float) -> AttemptOutcome:
    """Return the outcome of an attempt whose start raised the error of that class."""
    match error:
        case "WouldBillKey":
            return AttemptOutcome(ending="barred", reason=message)
        case "NoRoomForSession":
            return AttemptOutcome(ending="unreachable", reason=message, resume_at=now + NO_ROOM_SECONDS)
        case _ if issubclass(getattr(errors, error, Exception), InvalidInput):
            return AttemptOutcome(ending="failed", reason=message)
    return AttemptOutcome(ending="lost", reason=message)


def not_started_outcome(message: str, *, is_elsewhere: bool = False) -> AttemptOutcome:
    """Return the outcome of an attempt whose agent never ran. Only what lies in the unit itself is a failure of it."""
    if is_elsewhere and message.startswith(CANNOT_WORK):  # other hosts may have the folder
        return AttemptOutcome(ending="not_started", reason=message)
    if message in (STOPPED_EARLY, TOO_LATE):
        return AttemptOutcome(ending="lost", reason=message)
    if message.startswith(CANNOT_WORK) or message.endswith(TOO_LONG):
        return AttemptOutcome(ending="failed", reason=message)
    found = _CANNOT_RUN.match(message)
    if found is None:
        return AttemptOutcome(ending="not_started", reason=f"the agent could not be started: {message or 'no reason'}")
    why = "not found" if "No such file" in found["why"] else found["why"]
    return AttemptOutcome(ending="not_started", reason=f"the program {found['name']} could not be started: {why}")


def _checked_success(session: LiveSession) -> AttemptOutcome:
    """Return success only if an agent spoke, and the output that the plan names was written since it began."""
    facts = session.output.facts
    has_spoken = session.has_answered or facts.session_id or facts.model or facts.turns or facts.tokens
    if session.profile.stream == "json" and not has_spoken:
        program = session.profile.start[0]
        reason = f"exit code 0, but it printed no event of {session.profile.name}: is {program} another program?"
        return AttemptOutcome(ending="failed", reason=reason)
    if (problem := session.output.output_problem(session.unit)) is not None:
        return AttemptOutcome(ending="failed", reason=f"ended well, but {problem}")
    return AttemptOutcome(ending="succeeded", reason="done")


def _lost(session: LiveSession) -> tuple[int, int]:
    """Return the tokens that this resume has paid again: those that were measured, and those that are estimated."""
    result, requests = session.unit.result, session.output.facts.requests
    context = result.context_tokens
    if not (session.is_resumed and result.carried.is_parked):
        return 0, 0
    if requests is not None:
        paid = requests.uncached_first
        return (paid if context is None else min(paid, context)), 0
    waited = (session.unit.started_at or 0.0) - (result.carried.cached_at or 0.0)
    if context is None or not session.has_answered or waited < SHORTEST_CACHE_SECONDS:
        return 0, 0
    return 0, context


def result_after(session: LiveSession, outcome: AttemptOutcome, ended_at: float, prices: PriceList) -> UnitResult:
    """Return the result of the unit with what this attempt adds. All its output must have been read."""
    before, reader, host = session.unit.result, session.output.facts, session.host
    spent, conversation = _spent(session)
    started_at = session.unit.started_at or ended_at
    waited = max(0.0, started_at - (before.carried.left_at or session.campaign.created_at or started_at))
    # The main model wrote the most: others are those of sub-agents and small tasks.
    main = max((name for name in spent if name), key=lambda name: spent[name].output, default=None)
    model = main or reader.model or session.campaign.model or before.model
    # Tokens that cost money by themselves are no part of a subscription.
    is_metered = session.account is not None and session.account.kind == "metered"
    total = before.tokens
    for tokens in spent.values():
        total = tokens if total is None else total.plus(tokens)
    lost, estimated = _lost(session)
    known = before.context_tokens if session.is_resumed else None
    context = known if reader.requests is None else reader.requests.context
    is_kept = outcome.ending != "failed" and session.conversation is not None
    return msgspec.structs.replace(
        before,
        agent=session.campaign.agent,
        model=model,
        host=host or this_host(),
        is_remote=bool(host),
        turns=before.turns if reader.model_turns is None else (before.turns or 0) + reader.model_turns,
        tokens=total,
        cost=cost_after(before, spent, prices, is_billed=is_metered or reader.auth_mode in BILLED_MODES),
        answer=reader.answer or before.answer,
        waited_seconds=before.waited_seconds + waited,
        parked_seconds=before.parked_seconds + (waited if before.carried.is_parked else 0.0),
        ran_seconds=before.ran_seconds + max(0.0, ended_at - started_at),
        end_request=None,
        context_tokens=context if is_kept else None,
        lost_tokens=before.lost_tokens + lost + estimated,
        lost_tokens_estimated=before.lost_tokens_estimated + estimated,
        carried=Carried(
            conversation_tokens=conversation,
            left_at=ended_at,
            is_parked=outcome.ending == "parked",
            is_restarted=session.is_conversation_gone or (before.carried.is_restarted and not session.has_answered),
            cached_at=ended_at if session.has_answered else before.carried.cached_at,
            warnings=outcome.warnings if session.is_conversation_gone else before.carried.warnings,
        ),
    )


def _spent(session: LiveSession) -> tuple[TokensByModel, TokensByModel]:
    """Return the tokens of this attempt and of its conversation. Of a CLI that counts all, take the difference."""
    before = session.unit.result.carried.conversation_tokens if session.is_resumed else {}
    usage = session.output.facts.usage
    if usage is None:
        return {}, dict(before)
    unnamed = session.output.facts.model or session.campaign.model or ""
    counted: TokensByModel = {}
    for model, tokens in usage.by_model.items():
        name = model or unnamed
        counted[name] = counted.get(name, Tokens()).plus(tokens)
    if not usage.is_conversation:
        return counted, _added(before, counted)
    spent = {model: tokens.beyond(before.get(model, Tokens())) for model, tokens in counted.items()}
    return spent, _added(before, spent)


def _added(one: Mapping[str, Tokens], other: Mapping[str, Tokens]) -> TokensByModel:
    return {model: one.get(model, Tokens()).plus(other.get(model, Tokens())) for model in {**one, **other}}


def cost_after(before: UnitResult, spent: TokensByModel, prices: PriceList, *, is_billed: bool) -> Cost:
    """Return the cost with that of this attempt. Once tokens had no price, the sum is unknown and stays so."""
    if not spent or not any(tokens.total for tokens in spent.values()):
        return before.cost
    had_no_price = before.tokens is not None and before.tokens.total and before.cost == Cost()
    dollars = None if had_no_price else prices.cost(spent)
    if dollars is None:
        return Cost()
    if is_billed:
        return msgspec.structs.replace(before.cost, billed=(before.cost.billed or 0.0) + dollars)
    return msgspec.structs.replace(before.cost, imputed=(before.cost.imputed or 0.0) + dollars)
