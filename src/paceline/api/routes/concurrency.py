"""`/concurrency`: limits, cooldowns and what each scope does, in the shapes and words that clients of old know.

Times are milliseconds here. Errors are `{error}` with these very sentences.
"""

from typing import Any, TypeVar

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import UNSET

from paceline.api import schemas as wire
from paceline.api.context import OnSite, Site
from paceline.api.errors import Refused
from paceline.api.url_paths import unfold
from paceline.core import ScopeStatus
from paceline.core.values.scopes import ScopePattern
from paceline.core.values.validation import LONGEST_SECONDS
from paceline.engine import commands as orders
from paceline.errors import UnknownName

INVALID_JSON = "Invalid JSON body"
INVALID_LIMIT = "Body must be { limit: <positive integer> }"
INVALID_COOLDOWN = "Body must be { cooldownMs: <non-negative integer> }"
NO_LIMIT = "No concurrency limit configured for this provider"
NO_CONFIGURATION = "No concurrency configuration for this provider"
Body = TypeVar("Body")


async def _read(request: Request[Any, Any, Any], kind: type[Body], wanted: str) -> Body:
    try:
        value = msgspec.json.decode(await request.body())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, INVALID_JSON) from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise Refused(400, wanted) from None


@get("/concurrency/limits", sync_to_thread=False, summary="Every configured limit")
def get_limits(site: OnSite) -> wire.ScopeLimits:
    limits = site.governor.limits()
    return wire.ScopeLimits(limits=[wire.ScopeLimit(providerId=each, limit=limits[each]) for each in sorted(limits)])


@get("/concurrency/limits/{provider_id:str}", sync_to_thread=False, summary="The configured limit of a scope")
def get_limit(provider_id: FromPath[str], site: OnSite) -> wire.ScopeLimit:
    scope = ScopePattern(unfold(provider_id)).text
    limit = site.governor.get_limit(scope)
    if limit is None:
        raise Refused(404, NO_LIMIT)
    return wire.ScopeLimit(providerId=scope, limit=limit)


@put(
    "/concurrency/limits/{provider_id:str}",
    summary="Set the limit of a scope or pattern; what was learnt of it is forgotten",
    opt={"body": wire.LimitBody},
)
async def put_limit(request: Request[Any, Any, Any], provider_id: FromPath[str], site: OnSite) -> wire.ScopeLimit:
    body = await _read(request, wire.LimitBody, INVALID_LIMIT)
    scope = orders.set_limit(site.store, unfold(provider_id), body.limit, now=site.now)
    site.obey()
    return wire.ScopeLimit(providerId=scope, limit=body.limit)


@delete(
    "/concurrency/limits/{provider_id:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Take the limit of a scope away: those who wait enter",
)
def delete_limit(provider_id: FromPath[str], site: OnSite) -> wire.ScopeGone:
    scope = ScopePattern(unfold(provider_id)).text
    if site.governor.get_limit(scope) is None:
        raise Refused(404, NO_LIMIT)
    orders.remove_limit(site.store, scope, now=site.now)
    site.obey()
    return wire.ScopeGone(ok=True, providerId=scope)


@get("/concurrency/cooldown/{provider_id:str}", sync_to_thread=False, summary="How long a released slot still counts")
def get_cooldown(provider_id: FromPath[str], site: OnSite) -> wire.ScopeCooldown:
    scope = ScopePattern(unfold(provider_id)).text
    seconds = _cooldown_of(site, scope)
    if seconds is None:
        raise Refused(404, NO_CONFIGURATION)
    return wire.ScopeCooldown(providerId=scope, cooldownMs=round(seconds * 1000))


@put(
    "/concurrency/cooldown/{provider_id:str}",
    summary="Set how long a released slot of a scope still counts",
    opt={"body": wire.CooldownBody},
)
async def put_cooldown(request: Request[Any, Any, Any], provider_id: FromPath[str], site: OnSite) -> wire.ScopeCooldown:
    body = await _read(request, wire.CooldownBody, INVALID_COOLDOWN)
    if body.cooldownMs > LONGEST_SECONDS * 1000:
        raise Refused(400, INVALID_COOLDOWN)
    scope = orders.set_cooldown(site.store, unfold(provider_id), body.cooldownMs / 1000, now=site.now)
    site.obey()
    return wire.ScopeCooldown(providerId=scope, cooldownMs=body.cooldownMs)


@post(
    "/concurrency/restore/{provider_id:str}",
    sync_to_thread=False,
    status_code=200,
    summary="Back to the configured limit: what was learnt is forgotten, and a hold is lifted",
)
def post_restore(provider_id: FromPath[str], site: OnSite) -> wire.ScopeRestored:
    known = {status.scope for status in site.engine.limiter.statuses()} | set(site.governor.limits())
    try:
        name = unfold(provider_id)
        scope = orders.restore_scope(site.store, site.settings, name, known=known, now=site.now)
    except UnknownName:
        raise Refused(404, NO_CONFIGURATION) from None
    site.obey()
    return wire.ScopeRestored(ok=True, providerId=scope, limit=site.governor.get_limit(scope))


@get("/concurrency/status", sync_to_thread=False, summary="What every scope does now")
def get_status(site: OnSite) -> wire.ConcurrencyStatus:
    statuses = sorted(site.engine.limiter.statuses(), key=lambda status: status.scope)
    return wire.ConcurrencyStatus(providers=[_numbers(status) for status in statuses])


def _numbers(status: ScopeStatus) -> wire.ScopeNumbers:
    return wire.ScopeNumbers(
        providerId=status.scope,
        limit=status.limit,
        inFlight=status.in_flight + status.cooling,
        queued=status.queued,
        paused=status.paused,
        cooldownMs=round(status.cooldown * 1000),
        autoReduced=status.auto_reduced,
        configured=status.configured,
        pausedUntil=UNSET if status.paused_until is None else round(status.paused_until * 1000),
        autoReducedFrom=UNSET if status.auto_reduced_from is None else status.auto_reduced_from,
        notice=UNSET if status.notice is None else status.notice,
        platform=UNSET if status.platform is None else status.platform,
        adaptive=UNSET if status.adaptive is None else status.adaptive,
    )


def _cooldown_of(site: Site, scope: str) -> float | None:
    """In seconds; None of a scope of which nothing is known."""
    set_by_hand = site.governor.cooldowns().get(scope)
    if not ScopePattern(scope).is_exact:
        return set_by_hand if isinstance(set_by_hand, float) else None
    status = site.engine.limiter.scope_status(scope)
    if status is not None:
        return status.cooldown
    is_configured = set_by_hand is not None or site.governor.get_limit(scope) is not None
    return site.governor.get_cooldown(scope) if is_configured else None


ROUTES: list[HTTPRouteHandler] = [
    get_limits,
    get_limit,
    put_limit,
    delete_limit,
    get_cooldown,
    put_cooldown,
    post_restore,
    get_status,
]
