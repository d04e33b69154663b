"""The JSON bodies of requests and responses that are not views, with the names that they have on the wire.

Times are Unix seconds, except under `/concurrency`, which uses milliseconds. Never here: how a value is made.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from paceline.core.signals import Cause, Reach
from paceline.core.values.status import LearntLimit, PaceStatus, RateStatus, ScopeFigures, ScopeStatus
from paceline.core.values.tickets import Reason
from paceline.core.values.validation import LARGEST_LIMIT
from paceline.store.interface import Added, CampaignState
from paceline.views.capacity import AccountView, ScopeCapacity, ScopeWindow
from paceline.views.gateway_calls import GatewayActivity
from paceline.views.status import CampaignView, HostRow, Status
from paceline.views.units import ResultRow, SessionView, UnitView
from paceline.views.why import Need, Wait, Why

LimitNumber = Annotated[int, Meta(ge=1, le=LARGEST_LIMIT)]


class RequestSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the bodies that clients send. Unknown fields are refused, because ignoring one would hide a mistake."""


class Ok(msgspec.Struct, frozen=True, kw_only=True):
    """The request was carried out."""

    ok: bool = True


# -- /concurrency ----------------------------------------------------------------------------------


class LimitBody(msgspec.Struct, frozen=True):
    """The limit to set."""

    limit: LimitNumber


class CooldownBody(msgspec.Struct, frozen=True):
    """The cooldown to set, in milliseconds."""

    cooldownMs: Annotated[int, Meta(ge=0)]  # noqa: N815


class ScopeLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The configured limit of a scope or pattern."""

    providerId: str  # noqa: N815
    limit: int


class ScopeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every configured limit."""

    limits: list[ScopeLimit]


class LimitRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """The scope has no limit any more."""

    ok: bool
    providerId: str  # noqa: N815


class ScopeCooldown(msgspec.Struct, frozen=True, kw_only=True):
    """The cooldown of a scope or pattern, in milliseconds."""

    providerId: str  # noqa: N815
    cooldownMs: int  # noqa: N815


class ScopeRestored(msgspec.Struct, frozen=True, kw_only=True):
    """The scope is back at its configured limit, null for unlimited."""

    ok: bool
    providerId: str  # noqa: N815
    limit: int | None


class ConcurrencyPace(PaceStatus, frozen=True, kw_only=True, omit_defaults=True, rename={"interval": "intervalMs"}):
    """A learnt pace: runs, or starts, are about `intervalMs` apart."""

    interval: int
    since: int | None = None
    until: int | None = None


class ConcurrencyRate(RateStatus, frozen=True, kw_only=True, omit_defaults=True, rename={"seconds": "periodMs"}):
    """A rate of a scope: `used` of `limit` requests or tokens in `periodMs`."""

    seconds: int | None = None
    since: int | None = None
    until: int | None = None


class ConcurrencyLearnt(LearntLimit, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What refusals taught about a limit. `nextTryAt` is absent while `nextLevel` is being tried."""

    refused_level: int | None = None
    refused_at: int | None = None
    next_level: int | None = None
    next_try_at: int | None = None


class ConcurrencyRow(ScopeFigures, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename="camel"):
    """One scope. `limit` is the effective one, absent for unlimited; `inFlight` includes slots that cool down."""

    scope: str = msgspec.field(name="providerId")
    in_flight: int
    queued: int
    paused: bool
    cooldown: int = msgspec.field(name="cooldownMs")
    auto_reduced: bool
    limit: int | None = None
    auto_reduced_from: int | None = None
    paused_since: int | None = None
    paused_until: int | None = None
    paused_reason: str | None = None
    paced_until: int | None = None
    pace: ConcurrencyPace | None = None
    rates: tuple[ConcurrencyRate, ...] = ()
    learnt: ConcurrencyLearnt | None = None


class ScopeRate(msgspec.Struct, frozen=True, kw_only=True):
    """The configured rate of a scope or pattern: runs and tokens in a minute; null for any number."""

    providerId: str  # noqa: N815
    rpm: int | None
    tpm: int | None


class RateBody(RequestSchema, frozen=True, kw_only=True):
    """The rate to set: runs and tokens in a minute. What is left out, or null, is not limited."""

    rpm: LimitNumber | None = None
    tpm: LimitNumber | None = None


class ConcurrencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Every scope but the pools `sessions` and `runs`, which would count each slot again."""

    providers: list[ConcurrencyRow]


# -- the fleet -------------------------------------------------------------------------------------


class PoolSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions may run at once; null for no limit."""

    sessions: int | None


class PoolBody(RequestSchema, frozen=True, kw_only=True):
    """The pool size to set; null for no limit."""

    sessions: LimitNumber | None


class PauseBody(RequestSchema, frozen=True, kw_only=True):
    """How something is paused. The body may be left out."""

    at_turn: bool = False
    """Whether running sessions end at their next turn, and continue their conversations later."""


class CampaignRetry(RequestSchema, frozen=True, kw_only=True):
    """Which units of a campaign are tried again. Without a body: all that have stopped."""

    like: str
    """Only those that stopped in the state of this unit, and for its reason."""


class UnitRetry(RequestSchema, frozen=True, kw_only=True):
    """How a unit is tried again. The body may be left out."""

    fresh: bool = False
    """Whether it gives up its conversation, and starts again on any of its accounts."""


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Every live session."""

    sessions: list[SessionView]


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """Every account of the settings."""

    accounts: list[AccountView]


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Every quota window."""

    windows: list[ScopeWindow]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. Events with an id above `last_event_id` are not part of it yet."""

    at: float
    last_event_id: int
    status: Status
    campaigns: list[CampaignView]
    needs: list[Need]
    capacity: list[ScopeCapacity]
    sessions: list[SessionView]
    hosts: list[HostRow]
    waits: list[Wait]
    gateway: GatewayActivity | None
    """Null on a process that stands by: only the leader knows its calls."""


# -- campaigns -------------------------------------------------------------------------------------


class Campaigns(msgspec.Struct, frozen=True, kw_only=True):
    """Every campaign."""

    campaigns: list[CampaignView]


class CampaignAdded(Added, frozen=True, kw_only=True):
    """The campaign after the import. `changed` units differ from the stored ones and were left, or `updated`."""

    campaign: CampaignView


class CampaignBody(RequestSchema, frozen=True, kw_only=True):
    """The tables of a plan file: `campaign`, and `unit` (a list) or `units` (a source) or both."""

    campaign: dict[str, Any]
    unit: list[dict[str, Any]] = []
    units: dict[str, Any] | None = None


class CampaignStates(msgspec.Struct, frozen=True, kw_only=True):
    """The campaigns whose state the request changed, and their new state."""

    campaigns: list[str]
    state: CampaignState


# -- units -----------------------------------------------------------------------------------------


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A page of what units did. `cursor` continues after it."""

    results: list[ResultRow]
    cursor: str | None


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """A page of units. It may be shorter than its limit; there is more while there is a cursor."""

    units: list[UnitView]
    cursor: str | None
    waits_for: dict[str, str]
    """What each unit that is `todo` waits for, by its id, in the words of its `why`."""


class WhyAnswer(Why, frozen=True, kw_only=True):
    """What a unit waits for. `others` has the same for each other account that a waiting unit could run on."""

    others: list[Why]


class UnitLog(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an attempt's output, without control characters. Channels that were not requested are null.

    `transcript` is what was said, done and answered in it, or its last screen; null if one channel was requested.
    """

    unit: str
    attempt: str
    stdout: str | None
    stderr: str | None
    screen: str | None
    transcript: str | None
    truncated: bool


# -- slots -----------------------------------------------------------------------------------------


class SlotGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A slot. `token` grows with every grant: a resource that the slot protects can refuse an older one."""

    id: str
    scope: str
    token: int
    expires_at: float


class SlotDeferral(msgspec.Struct, frozen=True, kw_only=True):
    """No slot within the wait, and what binds. `retry_at` is when that may change, `position` the rank in the queue."""

    error: Literal["deferred"] = "deferred"
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None
    position: int | None


class SlotRelease(msgspec.Struct, frozen=True, kw_only=True):
    """`released` is false if there was nothing to release: the slot was released before, or its lease expired."""

    ok: bool = True
    id: str
    released: bool


class SessionRelease(msgspec.Struct, frozen=True, kw_only=True):
    """`released` is how many slots the session had: its own, and those of its runs."""

    ok: bool = True
    session: str
    released: int


class SignalBody(RequestSchema, frozen=True, kw_only=True):
    """A provider's answer as a signal. `kind` decides which fields apply; leave out those that are unknown.

    `retry_after` is in seconds from now; `resets_at`, `requests_reset_at` and `tokens_reset_at` are Unix times.
    """

    kind: Literal[
        "rate_limited",
        "overloaded",
        "unreachable",
        "quota_closed",
        "platform_limit",
        "billing_stop",
        "auth_failed",
        "usage",
        "budget",
        "succeeded",
    ]
    reach: Reach | None = None
    confidence: float | None = None
    source: str | None = None
    retry_after: float | None = None
    cause: Cause | None = None
    resets_at: float | None = None
    window: str | None = None
    limit: int | None = None
    in_use: int | None = None
    detail: str | None = None
    concurrent_sessions: int | None = None
    hard_cap: int | None = None
    requests_remaining: int | None = None
    requests_reset_at: float | None = None
    requests_limit: int | None = None
    tokens_remaining: int | None = None
    tokens_reset_at: float | None = None
    tokens_limit: int | None = None
    used_ratio: float | None = None
    tokens: int | None = None


class ScopeSignalBody(SignalBody, frozen=True, kw_only=True):
    """A signal without a slot. `scope` is what it is about."""

    scope: str


class Scopes(msgspec.Struct, frozen=True, kw_only=True):
    """The status of scopes, with times in seconds."""

    scopes: list[ScopeStatus]
