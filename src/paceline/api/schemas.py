"""Every value that goes over the wire, as it is named there. Times are Unix seconds, but for `/concurrency`.

No behaviour: how a value comes about is in the module of its route.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paceline.core import WindowStatus
from paceline.core.unit_lifecycle import UnitState
from paceline.core.values.validation import LARGEST_LIMIT
from paceline.core.values.verdicts import Reason
from paceline.store.interface import CampaignState

LimitNumber = Annotated[int, Meta(ge=1, le=LARGEST_LIMIT)]
Phase = Literal["waiting", "parked", "todo", "running", "done", "quarantined", "held", "cancelled"]
"""The states of units, with `todo` told apart into `waiting` and `parked`."""


ScopeKind = Literal["pool", "provider", "account", "model", "agent", "campaign"]


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is answered."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what is sent to us: a field that is not known is refused, not passed over."""


class Ok(Wire, frozen=True, kw_only=True):
    ok: bool = True


# -- /concurrency ----------------------------------------------------------------------------------


class LimitBody(msgspec.Struct, frozen=True):
    limit: LimitNumber


class CooldownBody(msgspec.Struct, frozen=True):
    cooldownMs: Annotated[int, Meta(ge=0)]  # noqa: N815


class ScopeLimit(Wire, frozen=True, kw_only=True):
    providerId: str  # noqa: N815
    limit: int


class ScopeLimits(Wire, frozen=True, kw_only=True):
    limits: list[ScopeLimit]


class ScopeGone(Wire, frozen=True, kw_only=True):
    ok: bool
    providerId: str  # noqa: N815


class ScopeCooldown(Wire, frozen=True, kw_only=True):
    providerId: str  # noqa: N815
    cooldownMs: int  # noqa: N815


class ScopeRestored(Wire, frozen=True, kw_only=True):
    ok: bool
    providerId: str  # noqa: N815
    limit: int | None


class ScopeNumbers(Wire, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One scope. `limit` is the effective one, None for unlimited; `inFlight` counts slots that cool down, too."""

    providerId: str  # noqa: N815
    limit: int | None
    inFlight: int  # noqa: N815
    queued: int
    paused: bool
    cooldownMs: int  # noqa: N815
    autoReduced: bool  # noqa: N815
    configured: int | None
    pausedUntil: int | UnsetType = UNSET  # noqa: N815
    autoReducedFrom: int | UnsetType = UNSET  # noqa: N815
    notice: str | UnsetType = UNSET
    platform: int | UnsetType = UNSET
    adaptive: int | UnsetType = UNSET


class ConcurrencyStatus(Wire, frozen=True, kw_only=True):
    providers: list[ScopeNumbers]


# -- the engine ------------------------------------------------------------------------------------


class Pool(Wire, frozen=True, kw_only=True):
    """Sessions at once; None for no limit."""

    sessions: int | None


class PoolBody(Asked, frozen=True, kw_only=True):
    sessions: LimitNumber | None


class EngineState(Wire, frozen=True, kw_only=True):
    state: Literal["leading", "standby", "paused"]
    since: float
    version: str
    pid: int


class PoolState(Wire, frozen=True, kw_only=True):
    """`running` counts sessions of units; `waiting` and `parked` are units."""

    sessions: int | None
    running: int
    waiting: int
    parked: int


class UnitTotals(Wire, frozen=True, kw_only=True):
    """Parked units are among the `todo`."""

    todo: int = 0
    running: int = 0
    done: int = 0
    quarantined: int = 0
    held: int = 0
    cancelled: int = 0


class CampaignTotals(UnitTotals, frozen=True, kw_only=True):
    parked: int = 0


class Status(Wire, frozen=True, kw_only=True):
    """`throughput` is how many units were done in the last hour, `eta` when the rest will be, as it looks now."""

    engine: EngineState
    pool: PoolState
    units: UnitTotals
    next_resume_at: float | None
    throughput: int
    eta: float | None


# -- campaigns -------------------------------------------------------------------------------------


class CampaignView(Wire, frozen=True, kw_only=True):
    """A campaign and how far it is. `quota` is a line for people while a window is spent."""

    id: str
    name: str
    state: CampaignState
    priority: int
    max_sessions: int | None
    strategy: str
    deadline: float | None
    agent: str
    model: str | None
    accounts: tuple[str, ...]
    max_attempts: int
    timeout: float | None
    command: tuple[str, ...]
    created_at: float
    units: CampaignTotals
    running: int
    finished: bool
    throughput: int
    eta: float | None
    quota: str | None


class Campaigns(Wire, frozen=True, kw_only=True):
    campaigns: list[CampaignView]


class CampaignAdded(Wire, frozen=True, kw_only=True):
    """What adding did; `changed` units differ from the stored ones and were left, or `updated`."""

    campaign: CampaignView
    added: int
    unchanged: int
    changed: tuple[str, ...]
    updated: tuple[str, ...]


class CampaignBody(Asked, frozen=True, kw_only=True):
    """The same as a plan file: `campaign`, and `unit` (a list) or `units` (a source) or both."""

    campaign: dict[str, Any]
    unit: list[dict[str, Any]] = []
    units: dict[str, Any] | None = None


class CampaignChanges(Asked, frozen=True, kw_only=True):
    """What can be changed of a campaign; what is left out stays. Null takes a value away, where there need be none."""

    priority: int | UnsetType = UNSET
    max_sessions: LimitNumber | UnsetType | None = UNSET
    strategy: Literal["rush", "spread"] | UnsetType = UNSET
    deadline: str | float | UnsetType | None = UNSET
    max_attempts: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    timeout: str | float | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    accounts: list[str] | UnsetType = UNSET


class Changed(Wire, frozen=True, kw_only=True):
    """The campaigns whose state was changed by it."""

    campaigns: list[str]
    state: CampaignState


# -- units -----------------------------------------------------------------------------------------


class UnitView(Wire, frozen=True, kw_only=True):
    id: str
    campaign: str
    state: UnitState
    attempts: int
    tries: int
    parks: int
    resume_at: float | None
    reason: str | None
    account: str | None
    session_id: str | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None


class Units(Wire, frozen=True, kw_only=True):
    """A page. It may be shorter than its limit: there is more as long as there is a cursor."""

    units: list[UnitView]
    cursor: str | None


class Happened(Wire, frozen=True, kw_only=True):
    """An event of a unit."""

    id: int
    at: float
    name: str
    scope: str | None
    fields: dict[str, Any]


class UnitDetail(UnitView, frozen=True, kw_only=True):
    """All of a unit. `screen` is the end of what its last try showed, `history` what happened to it, oldest first."""

    prompt: str
    cwd: str
    output: str | None
    attempt: str | None
    screen: str
    history: list[Happened]


class WhyUnit(Wire, frozen=True, kw_only=True):
    """What holds a unit. `reason` is one word for programs, `detail` a sentence, `hint` what a person can do."""

    unit: str
    state: Phase
    reason: str
    detail: str
    scope: str | None
    since: float | None
    until: float | None
    hint: str | None


class WhyAnswer(WhyUnit, frozen=True, kw_only=True):
    """`others`: the same for each other account that a waiting unit could run on."""

    others: list[WhyUnit]


class UnitLog(Wire, frozen=True, kw_only=True):
    """The end of what the last try printed, without control characters; channels that were not asked for are None."""

    unit: str
    attempt: str
    stdout: str | None
    stderr: str | None
    screen: str | None
    truncated: bool


# -- sessions, accounts, windows -------------------------------------------------------------------


class SessionView(Wire, frozen=True, kw_only=True):
    """A unit that runs. `ending` says why it is being ended, if it is."""

    unit: str
    campaign: str
    attempt: str
    account: str | None
    scope: str | None
    agent: str
    model: str | None
    session_id: str | None
    started_at: float | None
    tries: int
    pid: int | None
    ending: str | None


class Sessions(Wire, frozen=True, kw_only=True):
    sessions: list[SessionView]


class Variable(Wire, frozen=True, kw_only=True):
    """The name of a variable and whether it is set; never what it holds."""

    name: str
    is_set: bool


class AccountView(Wire, frozen=True, kw_only=True):
    name: str
    provider: str
    kind: Literal["subscription", "metered"]
    scope: str
    reserve: float
    base_url: str | None
    key: Variable | None
    env: list[Variable]
    held: str | None
    windows: tuple[WindowStatus, ...]


class Accounts(Wire, frozen=True, kw_only=True):
    accounts: list[AccountView]


class ScopeWindow(Wire, frozen=True, kw_only=True):
    """A quota window: what is believed of it, from where, since when, and how far to trust it."""

    scope: str
    name: str
    state: str
    resets_at: float | None
    probe_at: float | None
    source: str | None
    seen_at: float | None
    confidence: float
    used_ratio: float | None
    estimated_ratio: float | None
    holds_seconds: float | None
    expected_reset: float | None
    length: float | None


class Windows(Wire, frozen=True, kw_only=True):
    windows: list[ScopeWindow]


class Capacity(Wire, frozen=True, kw_only=True):
    """One scope. `limit` is the effective one, the smallest of `configured`, `platform` and `adaptive`.

    `configured_source` says where `configured` comes from: `file`, `environment`, `shipped`, `live`, `plan` or
    `pattern`, and `configured_by` which entry it is; empty and None where nothing is configured.
    """

    scope: str
    kind: ScopeKind
    in_flight: int
    cooling: int
    limit: int | None
    configured: int | None
    configured_source: str
    configured_by: str | None
    platform: int | None
    adaptive: int | None
    queued: int
    cooldown: float
    paused_until: float | None
    auto_reduced: bool
    auto_reduced_from: int | None
    notice: str | None
    held: str | None
    windows: tuple[WindowStatus, ...]


class Wait(Wire, frozen=True, kw_only=True):
    """What holds the units of a campaign on one of its accounts."""

    campaign: str
    account: str | None
    reason: Reason
    scope: str
    detail: str
    retry_at: float | None


class Overview(Wire, frozen=True, kw_only=True):
    """Everything at one moment. Events with an id above `last_event_id` are news to it."""

    at: float
    last_event_id: int
    status: Status
    campaigns: list[CampaignView]
    capacity: list[Capacity]
    sessions: list[SessionView]
    waits: list[Wait]
