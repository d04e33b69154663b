"""The routes of `/concurrency`: limits, cooldowns and the status of each scope.

The shapes and the sentences are fixed, because existing clients rely on them. Times are milliseconds here, names are
camelCase, absent values are left out, and errors are `{error}`.
"""

from typing import Any, TypeVar

import msgspec
from litestar import Request, delete, get, post, put
from litestar.params import FromPath

from paceline.api import schemas
from paceline.api.bodies import HttpError, unfold
from paceline.api.context import ApiContext, Context
from paceline.core import ScopeStatus
from paceline.core.values.fields import fields_of
from paceline.core.values.scopes import RUNS, SESSIONS, ScopePattern
from paceline.core.values.settings import Rate
from paceline.core.values.validation import LONGEST_SECONDS
from paceline.engine import commands
from paceline.errors import UnknownName

INVALID_JSON = "Invalid JSON body"
INVALID_RATE = "Body must be { rpm: <positive integer or null>, tpm: <positive integer or null> }"
INVALID_LIMIT = "Body must be { limit: <positive integer> }"
INVALID_COOLDOWN = "Body must be { cooldownMs: <non-negative integer> }"
NO_LIMIT = "No concurrency limit configured for this provider"
NO_CONFIGURATION = "No concurrency configuration for this provider"
Body = TypeVar("Body")
Sent = TypeVar("Sent", bound=msgspec.Struct)
TIMES = {"cooldown", "interval", "seconds", "since", "until", "paused_since", "paused_until", "paced_until"}
TIMES |= {"refused_at", "next_try_at"}
"""Fields of a status that are in seconds."""


async def _read_body(request: Request[Any, Any, Any], kind: type[Body], expected: str) -> Body:
    try:
        value = msgspec.json.decode(await request.body())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HttpError(400, INVALID_JSON) from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise HttpError(400, expected) from None


@get("/concurrency/limits", sync_to_thread=False, summary="Every configured limit")
def get_limits(context: Context) -> schemas.ScopeLimits:
    limits = context.governor.limits()
    return schemas.ScopeLimits(
        limits=[schemas.ScopeLimit(providerId=each, limit=limits[each]) for each in sorted(limits)]
    )


@get("/concurrency/limits/{provider_id:str}", sync_to_thread=False, summary="The configured limit of a scope")
def get_limit(provider_id: FromPath[str], context: Context) -> schemas.ScopeLimit:
    scope = commands.present_scope(context.settings, unfold(provider_id))
    limit = context.governor.get_limit(scope)
    if limit is None:
        raise HttpError(404, NO_LIMIT)
    return schemas.ScopeLimit(providerId=scope, limit=limit)


@put(
    "/concurrency/limits/{provider_id:str}",
    summary="Set the limit of a scope or pattern, and forget what was learnt about it",
    opt={"body": schemas.LimitBody},
)
async def put_limit(
    request: Request[Any, Any, Any], provider_id: FromPath[str], context: Context
) -> schemas.ScopeLimit:
    body = await _read_body(request, schemas.LimitBody, INVALID_LIMIT)
    scope = commands.set_limit(context.store, context.settings, unfold(provider_id), body.limit, now=context.now)
    context.apply_commands()
    return schemas.ScopeLimit(providerId=scope, limit=body.limit)


@delete(
    "/concurrency/limits/{provider_id:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Remove the limit of a scope; waiting tickets enter",
)
def delete_limit(provider_id: FromPath[str], context: Context) -> schemas.LimitRemoved:
    scope = commands.present_scope(context.settings, unfold(provider_id))
    if context.governor.get_limit(scope) is None:
        raise HttpError(404, NO_LIMIT)
    commands.remove_limit(context.store, context.settings, scope, now=context.now)
    context.apply_commands()
    return schemas.LimitRemoved(ok=True, providerId=scope)


@get(
    "/concurrency/cooldown/{provider_id:str}",
    sync_to_thread=False,
    summary="How long a released slot still counts",
)
def get_cooldown(provider_id: FromPath[str], context: Context) -> schemas.ScopeCooldown:
    scope = commands.present_scope(context.settings, unfold(provider_id))
    seconds = _cooldown_of(context, scope)
    if seconds is None:
        raise HttpError(404, NO_CONFIGURATION)
    return schemas.ScopeCooldown(providerId=scope, cooldownMs=round(seconds * 1000))


@put(
    "/concurrency/cooldown/{provider_id:str}",
    summary="Set how long a released slot of a scope still occupies its place",
    opt={"body": schemas.CooldownBody},
)
async def put_cooldown(
    request: Request[Any, Any, Any], provider_id: FromPath[str], context: Context
) -> schemas.ScopeCooldown:
    body = await _read_body(request, schemas.CooldownBody, INVALID_COOLDOWN)
    if body.cooldownMs > LONGEST_SECONDS * 1000:
        raise HttpError(400, INVALID_COOLDOWN)
    scope = commands.set_cooldown(
        context.store, context.settings, unfold(provider_id), body.cooldownMs / 1000, now=context.now
    )
    context.apply_commands()
    return schemas.ScopeCooldown(providerId=scope, cooldownMs=body.cooldownMs)


@put(
    "/concurrency/rates/{provider_id:str}",
    summary="Set how many runs and tokens may start in a minute in a scope or pattern",
    opt={"body": schemas.RateBody},
)
async def put_rate(request: Request[Any, Any, Any], provider_id: FromPath[str], context: Context) -> schemas.ScopeRate:
    body = await _read_body(request, schemas.RateBody, INVALID_RATE)
    rate = Rate(rpm=body.rpm, tpm=body.tpm)
    scope = commands.set_rate(context.store, context.settings, unfold(provider_id), rate, now=context.now)
    context.apply_commands()
    return schemas.ScopeRate(providerId=scope, rpm=body.rpm, tpm=body.tpm)


@delete(
    "/concurrency/rates/{provider_id:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Return to the rate of the settings",
)
def delete_rate(provider_id: FromPath[str], context: Context) -> schemas.LimitRemoved:
    scope = commands.set_rate(context.store, context.settings, unfold(provider_id), None, now=context.now)
    context.apply_commands()
    return schemas.LimitRemoved(ok=True, providerId=scope)


@post(
    "/concurrency/restore/{provider_id:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Return to the configured limit: forget what was learnt, end pauses and paces, and lift a hold",
)
def post_restore(provider_id: FromPath[str], context: Context) -> schemas.ScopeRestored:
    known = {status.scope for status in context.engine.limiter.statuses()} | set(context.governor.limits())
    try:
        name = unfold(provider_id)
        scope = commands.restore_scope(context.store, context.settings, name, known=known, now=context.now)
    except UnknownName:
        raise HttpError(404, NO_CONFIGURATION) from None
    context.apply_commands()
    return schemas.ScopeRestored(ok=True, providerId=scope, limit=context.governor.get_limit(scope))


@get("/concurrency/status", sync_to_thread=False, summary="The status of every scope")
def get_status(context: Context) -> schemas.ConcurrencyStatus:
    statuses = sorted(context.engine.limiter.statuses(), key=lambda status: status.scope)
    return schemas.ConcurrencyStatus(providers=[_row(each) for each in statuses if each.scope not in (SESSIONS, RUNS)])


def _row(status: ScopeStatus) -> schemas.ConcurrencyRow:
    return _sent(
        status,
        schemas.ConcurrencyRow,
        in_flight=status.in_flight + status.cooling,
        pace=None if status.pace is None else _sent(status.pace, schemas.ConcurrencyPace),
        rates=tuple(_sent(rate, schemas.ConcurrencyRate) for rate in status.rates),
        learnt=None if status.learnt is None else _sent(status.learnt, schemas.ConcurrencyLearnt),
    )


def _sent(value: msgspec.Struct, kind: type[Sent], **changed: object) -> Sent:
    """Return the value as it is sent here, with its times in milliseconds."""
    fields = fields_of(kind, value)
    times = {name: round(fields[name] * 1000) for name in TIMES & fields.keys() if fields[name] is not None}
    return kind(**fields | times | changed)


def _cooldown_of(context: ApiContext, scope: str) -> float | None:
    """Return the cooldown in seconds, or None for a scope about which nothing is known."""
    set_by_hand = context.governor.cooldowns().get(scope)
    if not ScopePattern(scope).is_exact:
        return set_by_hand if isinstance(set_by_hand, float) else None
    status = context.engine.limiter.scope_status(scope)
    if status is not None:
        return status.cooldown
    is_configured = set_by_hand is not None or context.governor.get_limit(scope) is not None
    return context.governor.get_cooldown(scope) if is_configured else None
