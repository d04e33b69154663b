"""Every known refusal of a provider by name: status, headers and body in the shape of each protocol.

If a protocol does not have an error of that name, it answers with its first error of the same kind. So a script works
with every client.

A template is plain data (strings, lists, dicts) with `{name}` in it. A string that consists only of `{name}` becomes
the value itself, so that a number stays a number in JSON.
"""

import math
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from paceline.simulation.provider.protocol_module import Json, ProtocolName

CLAIMS = {"5h": "five_hour", "7d": "seven_day", "7d_opus": "seven_day_opus", "7d_sonnet": "seven_day_sonnet"}


class ErrorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a request is refused."""

    now: float
    model: str
    retry_after: float = 3.0
    resets_at: float
    window: str = "5h"
    limit: int = 50
    in_use: int = 50


def spell(facts: ErrorFacts) -> dict[str, str | int]:
    """Return every name that a template may use, with its value."""
    resets = datetime.fromtimestamp(facts.resets_at, UTC)
    resets_in = max(0, math.ceil(facts.resets_at - facts.now))
    return {
        "model": facts.model,
        "limit": facts.limit,
        "in_use": facts.in_use,
        "window": facts.window,
        "claim": CLAIMS.get(facts.window, facts.window),
        "retry_after": math.ceil(facts.retry_after),
        "retry_after_ms": math.ceil(facts.retry_after * 1000),
        "retry_after_go": f"{facts.retry_after:g}s",
        "retry_at_iso": iso(facts.now + facts.retry_after),
        "resets_at": int(facts.resets_at),
        "resets_at_ms": int(facts.resets_at * 1000),
        "resets_in": resets_in,
        "resets_in_go": go_duration(resets_in),
        "resets_iso": iso(facts.resets_at),
        "resets_date": f"{resets:%Y-%m-%d}",
        "resets_clock": f"{resets:%Y-%m-%d %H:%M:%S}",
    }


def iso(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def go_duration(seconds: int) -> str:
    """Return a duration as Go prints it: `8h44m7s`."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{left}s"


def fill(template: Any, values: dict[str, str | int]) -> Any:
    """Return the template with its names replaced, also in keys."""
    if isinstance(template, str):
        name = template[1:-1]
        return values[name] if template == f"{{{name}}}" else template.format_map(values)
    if isinstance(template, dict):
        return {fill(key, values): fill(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    return template


# -- templates ----------------------------------------------------------------------------------------

Kind = Literal["rate_limit", "quota_window", "platform_limit", "overloaded", "billing", "auth", "failed"]
Place = Literal["before", "midstream", "reset", "midstream_reset", "midstream_end"]


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `kind` is what a reader should detect, `place` where in the exchange it happens.

    It is a template until its numbers are filled in. Then it has its name.
    """

    name: str = ""
    kind: Kind
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    place: Place = "before"


def with_headers(error: ProviderError, headers: dict[str, str]) -> ProviderError:
    return msgspec.structs.replace(error, headers=error.headers | headers)


def midstream(error: ProviderError) -> ProviderError:
    """Return the same error, sent after half of the answer."""
    return msgspec.structs.replace(error, place="midstream")


RETRY_AFTER = {"retry-after": "{retry_after}"}
ENDINGS = {
    "rst": ProviderError(kind="failed", place="reset"),
    "midstream_rst": ProviderError(kind="failed", place="midstream_reset"),
    "midstream_end": ProviderError(kind="failed", place="midstream_end"),
}


# -- the Anthropic API, API keys and subscriptions (`unified`) alike ------------------------------------


def _anthropic_error(kind: Kind, status: int, type_: str, message: str) -> ProviderError:
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_fake"}
    return ProviderError(kind=kind, status=status, body=body)


_UNIFIED = "anthropic-ratelimit-unified"


def _rejected(window: str, claim: str | None = None) -> dict[str, str]:
    """Return the headers of a spent subscription window."""
    return {
        f"{_UNIFIED}-status": "rejected",
        f"{_UNIFIED}-reset": "{resets_at}",
        f"{_UNIFIED}-representative-claim": claim or CLAIMS[window],
        f"{_UNIFIED}-{window}-status": "rejected",
        f"{_UNIFIED}-{window}-reset": "{resets_at}",
        f"{_UNIFIED}-{window}-utilization": "1.0",
        f"{_UNIFIED}-fallback-percentage": "0.5",
        f"{_UNIFIED}-overage-status": "rejected",
        f"{_UNIFIED}-overage-disabled-reason": "org_level_disabled",
        "retry-after": "{resets_in}",
    }


_ANTHROPIC_OVERLOADED = with_headers(
    _anthropic_error("overloaded", 529, "overloaded_error", "Overloaded"), {"x-should-retry": "true"}
)
_RATE = _anthropic_error(
    "rate_limit",
    429,
    "rate_limit_error",
    "This request would exceed your organization's rate limit of {limit} requests per minute.",
)
_OVER_ACCOUNT = "This request would exceed your account's rate limit. Please try again later."
_QUOTA = _anthropic_error("quota_window", 429, "rate_limit_error", _OVER_ACCOUNT)

ANTHROPIC: dict[str, ProviderError] = {
    "429_retry_after": with_headers(_RATE, RETRY_AFTER),
    "429_requests": with_headers(
        _RATE,
        RETRY_AFTER
        | {
            "anthropic-ratelimit-requests-limit": "{limit}",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "{retry_at_iso}",
        },
    ),
    "429_tokens": with_headers(
        _anthropic_error(
            "rate_limit",
            429,
            "rate_limit_error",
            "This request would exceed your organization's rate limit of {limit} input tokens per minute "
            "(model: {model}). Please reduce the prompt length or the maximum tokens requested, or try again later.",
        ),
        RETRY_AFTER
        | {
            "anthropic-ratelimit-input-tokens-limit": "{limit}",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "{retry_at_iso}",
        },
    ),
    "429_plain": _RATE,
    "429_starts": with_headers(
        _anthropic_error(
            "rate_limit",
            429,
            "rate_limit_error",
            "This request would exceed your organization's maximum usage increase rate for requests per minute. "
            "Please scale up your usage more gradually to stay within the acceleration limit.",
        ),
        RETRY_AFTER,
    ),
    "429_burst": with_headers(
        _anthropic_error("rate_limit", 429, "rate_limit_error", _OVER_ACCOUNT),
        {f"{_UNIFIED}-status": "allowed", f"{_UNIFIED}-{{window}}-status": "allowed"},
    ),
    "429_unified": with_headers(_QUOTA, _rejected("{window}", "{claim}")),
    "429_unified_7d": with_headers(_QUOTA, _rejected("7d")),
    "429_unified_7d_opus": with_headers(_QUOTA, _rejected("7d_opus")),
    "429_concurrency": _anthropic_error(
        "platform_limit",
        429,
        "rate_limit_error",
        "Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales at "
        "https://www.anthropic.com/contact-sales to discuss your options for a rate limit increase.",
    ),
    "429_concurrency_limit": _anthropic_error(
        "platform_limit", 429, "rate_limit_error", "Too many concurrent requests. Limit: {limit} concurrent requests"
    ),
    "529": _ANTHROPIC_OVERLOADED,
    "529_retry_after": with_headers(_ANTHROPIC_OVERLOADED, RETRY_AFTER),
    "503": _anthropic_error("overloaded", 503, "api_error", "Service unavailable"),
    "500": _anthropic_error("overloaded", 500, "api_error", "Internal server error"),
    "500_overloaded": _anthropic_error("overloaded", 500, "api_error", "Overloaded"),
    "504": _anthropic_error("overloaded", 504, "timeout_error", "Request timed out"),
    "400_credit": _anthropic_error(
        "billing",
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    "400_usage_limits": _anthropic_error(
        "billing",
        400,
        "invalid_request_error",
        "You have reached your specified API usage limits. You will regain access on {resets_date} at 00:00 UTC.",
    ),
    "402": _anthropic_error(
        "billing", 402, "billing_error", "There is an issue with your billing or payment information."
    ),
    "429_long_context": _anthropic_error(
        "billing", 429, "rate_limit_error", "Extra usage is required for long context requests."
    ),
    "429_out_of_credits": with_headers(
        _anthropic_error("billing", 429, "rate_limit_error", _OVER_ACCOUNT),
        {f"{_UNIFIED}-status": "rejected", f"{_UNIFIED}-overage-disabled-reason": "out_of_credits"},
    ),
    "401": _anthropic_error("auth", 401, "authentication_error", "invalid x-api-key"),
    "401_expired": _anthropic_error(
        "auth",
        401,
        "authentication_error",
        "OAuth token has expired. Please obtain a new token or refresh your existing token.",
    ),
    "403": _anthropic_error(
        "auth", 403, "permission_error", "Your API key does not have permission to use the resource."
    ),
    "400_invalid": _anthropic_error(
        "failed", 400, "invalid_request_error", "messages: at least one message is required"
    ),
    "404_model": _anthropic_error("failed", 404, "not_found_error", "model: {model}"),
    "413": _anthropic_error("failed", 413, "request_too_large", "Request exceeds the maximum size"),
    "midstream_overloaded": midstream(_ANTHROPIC_OVERLOADED),
    "midstream_rate_limit": midstream(_RATE),
    **ENDINGS,
}


# -- the OpenAI API, Codex and compatible servers -----------------------------------------------------


def _openai_error(kind: Kind, status: int, type_: str | None, code: str | None, message: str) -> ProviderError:
    body = {"error": {"message": message, "type": type_, "param": None, "code": code}}
    return ProviderError(kind=kind, status=status, body=body)


_CODEX_REJECTED = {
    "x-codex-primary-used-percent": "100.0",
    "x-codex-primary-window-minutes": "300",
    "x-codex-primary-reset-at": "{resets_at}",
    "x-codex-secondary-used-percent": "61.0",
    "x-codex-secondary-window-minutes": "10080",
    "x-codex-secondary-reset-at": "{resets_at}",
}
_TOKENS_PER_MINUTE = _openai_error(
    "rate_limit",
    429,
    "tokens",
    "rate_limit_exceeded",
    "Rate limit reached for {model} in organization org-fake on tokens per min (TPM): Limit {limit}, Used {in_use}, "
    "Requested 5000. Please try again in {retry_after_go}. "
    "Visit https://platform.openai.com/account/rate-limits to learn more.",
)
_INSUFFICIENT = _openai_error(
    "billing",
    429,
    "insufficient_quota",
    "insufficient_quota",
    "You exceeded your current quota, please check your plan and billing details. "
    "For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
)
_OPENAI_OVERLOADED = _openai_error(
    "overloaded", 503, "server_error", "server_is_overloaded", "The server is overloaded or not ready yet."
)

OPENAI: dict[str, ProviderError] = {
    "429_retry_after": with_headers(_TOKENS_PER_MINUTE, RETRY_AFTER),
    "429_tokens": with_headers(
        _TOKENS_PER_MINUTE,
        RETRY_AFTER
        | {
            "x-ratelimit-limit-tokens": "{limit}",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "{retry_after_go}",
        },
    ),
    "429_requests": with_headers(
        _openai_error(
            "rate_limit",
            429,
            "requests",
            "rate_limit_exceeded",
            "Rate limit reached for {model} in organization org-fake on requests per min (RPM): Limit {limit}, "
            "Used {in_use}, Requested 1. Please try again in {retry_after_go}.",
        ),
        RETRY_AFTER
        | {
            "retry-after-ms": "{retry_after_ms}",
            "x-ratelimit-limit-requests": "{limit}",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "{retry_after_go}",
        },
    ),
    "429_plain": _openai_error(
        "rate_limit", 429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached for requests."
    ),
    "429_starts": with_headers(
        _openai_error(
            "rate_limit",
            429,
            "requests",
            "slow_down",
            "You are sending requests too quickly. Reduce your request rate to its original level and increase it "
            "gradually.",
        ),
        RETRY_AFTER,
    ),
    "429_dashscope": _openai_error(
        "rate_limit",
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details. "
        "For details, see: https://help.aliyun.com/zh/model-studio/error-code#token-limit",
    ),
    "429_usage_limit": ProviderError(
        kind="quota_window",
        status=429,
        headers=_CODEX_REJECTED,
        body={
            "error": {
                "type": "usage_limit_reached",
                "message": "The usage limit has been reached",
                "plan_type": "plus",
                "resets_at": "{resets_at}",
                "resets_in_seconds": "{resets_in}",
            }
        },
    ),
    "429_zai_5h": _openai_error(
        "quota_window",
        429,
        None,
        "1308",
        "Usage limit reached for 5 hour. Your limit will reset at {resets_clock}",
    ),
    "429_free_per_day": ProviderError(
        kind="quota_window",
        status=429,
        body={
            "error": {
                "message": "Rate limit exceeded: free-models-per-day. "
                "Add 10 credits to unlock 1000 free model requests per day",
                "code": 429,
                "metadata": {
                    "headers": {
                        "X-RateLimit-Limit": "{limit}",
                        "X-RateLimit-Remaining": "0",
                        "X-RateLimit-Reset": "{resets_at_ms}",
                    }
                },
            }
        },
    ),
    "429_go_subscription": ProviderError(
        kind="quota_window",
        status=429,
        headers={"retry-after": "{resets_in}"},
        body={
            "type": "error",
            "error": {
                "type": "GoUsageLimitError",
                "message": "Subscription quota exceeded. You can continue using free models.",
            },
            "metadata": {"workspace": "wrk_fake", "limitName": "5 hour"},
        },
    ),
    "429_concurrency": _openai_error(
        "platform_limit",
        429,
        "rate_limit_reached_error",
        None,
        "Your account org-fake<ak-fake> request reached max organization concurrency: {limit}, "
        "please try again after {retry_after} seconds",
    ),
    "429_zai_concurrency": _openai_error(
        "platform_limit",
        429,
        None,
        "1302",
        "High concurrency usage of this API, please reduce concurrency or contact customer service to increase limits",
    ),
    "423": with_headers(
        _openai_error("platform_limit", 423, "locked", "locked", "All sessions are in use."), RETRY_AFTER
    ),
    "503": _OPENAI_OVERLOADED,
    "500": _openai_error(
        "overloaded", 500, "server_error", None, "The server had an error while processing your request. Sorry!"
    ),
    "429_overloaded": _openai_error(
        "overloaded",
        429,
        "engine_overloaded_error",
        None,
        "The engine is currently overloaded, please try again later",
    ),
    "429_tier_capacity": ProviderError(
        kind="overloaded",
        status=429,
        body={
            "object": "error",
            "message": "Service tier capacity exceeded for this model.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
    ),
    "503_busy": ProviderError(
        kind="overloaded",
        status=503,
        body={"error": "server busy, please try again. maximum pending requests exceeded"},
    ),
    "429_insufficient_quota": _INSUFFICIENT,
    "402": _openai_error("billing", 402, None, "402", "Insufficient credits. Add more using the account's settings."),
    "429_usage_not_included": _openai_error(
        "billing", 429, "usage_not_included", None, "To use Codex with your ChatGPT plan, upgrade to Plus."
    ),
    "429_no_balance": _openai_error(
        "billing", 429, None, "1113", "Insufficient balance or no resource package. Please recharge."
    ),
    "400_budget": _openai_error(
        "billing", 400, "auth_error", "400", "Budget has been exceeded! Current cost: 0.0010747, Max budget: 0.0"
    ),
    "401": _openai_error(
        "auth",
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-fake. You can find your API key at https://platform.openai.com/account/api-keys.",
    ),
    "403": _openai_error(
        "auth",
        403,
        "request_forbidden",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    "400_invalid": _openai_error(
        "failed", 400, "invalid_request_error", "invalid_type", "Invalid type for 'messages'."
    ),
    "404_model": _openai_error(
        "failed", 404, "invalid_request_error", "model_not_found", "The model `{model}` does not exist."
    ),
    "midstream_rate_limit": midstream(_TOKENS_PER_MINUTE),
    "midstream_quota": midstream(_INSUFFICIENT),
    "midstream_overloaded": midstream(_OPENAI_OVERLOADED),
    **ENDINGS,
}


# -- the Gemini API and the services behind the Gemini CLI ---------------------------------------------


def _gemini_error(kind: Kind, code: int, status: str, message: str, *details: Json) -> ProviderError:
    error: Json = {"code": code, "message": message, "status": status}
    if details:
        error["details"] = list(details)
    return ProviderError(kind=kind, status=code, body={"error": error})


_RPC = "type.googleapis.com/google.rpc"
_FREE_TIER = "generativelanguage.googleapis.com/generate_content_free_tier_requests"


def _quota_failure(quota_id: str, value: str) -> Json:
    violation = {
        "quotaMetric": _FREE_TIER,
        "quotaId": quota_id,
        "quotaDimensions": {"location": "global", "model": "{model}"},
        "quotaValue": value,
    }
    return {"@type": f"{_RPC}.QuotaFailure", "violations": [violation]}


def _quota_error(kind: Kind, limit: str, wait: str, *details: Json) -> ProviderError:
    message = (
        "You exceeded your current quota, please check your plan and billing details. For more information on this "
        "error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n"
        f"* Quota exceeded for metric: {_FREE_TIER}, limit: {limit}\nPlease retry in {wait}."
    )
    retry = {"@type": f"{_RPC}.RetryInfo", "retryDelay": wait}
    return _gemini_error(kind, 429, "RESOURCE_EXHAUSTED", message, *details, retry)


_PER_MINUTE = _quota_error(
    "rate_limit",
    "{limit}",
    "{retry_after_go}",
    _quota_failure("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "{limit}"),
)
_GEMINI_OVERLOADED = _gemini_error("overloaded", 503, "UNAVAILABLE", "The model is overloaded. Please try again later.")

GEMINI: dict[str, ProviderError] = {
    "429_retry_after": _PER_MINUTE,
    "429_retryinfo": _PER_MINUTE,
    "429_plain": _gemini_error(
        "rate_limit", 429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."
    ),
    "429_perday": _quota_error(
        "quota_window",
        "{limit}",
        "{resets_in}s",
        _quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "{limit}"),
    ),
    "429_capacity": _gemini_error(
        "quota_window",
        429,
        "RESOURCE_EXHAUSTED",
        "You have exhausted your capacity on this model. Your quota will reset after {resets_in_go}.",
        {
            "@type": f"{_RPC}.ErrorInfo",
            "reason": "QUOTA_EXHAUSTED",
            "domain": "cloudcode-pa.googleapis.com",
            "metadata": {
                "uiMessage": "true",
                "model": "{model}",
                "quotaResetDelay": "{resets_in_go}",
                "quotaResetTimeStamp": "{resets_iso}",
            },
        },
        {"@type": f"{_RPC}.RetryInfo", "retryDelay": "{resets_in}s"},
    ),
    "429_limit_zero": _quota_error(
        "billing", "0", "{retry_after_go}", _quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "0")
    ),
    "503": _GEMINI_OVERLOADED,
    "500": _gemini_error(
        "overloaded",
        500,
        "INTERNAL",
        "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting",
    ),
    "401": _gemini_error(
        "auth",
        401,
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
    ),
    "400_api_key": _gemini_error(
        "auth",
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        {"@type": f"{_RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"},
    ),
    "403": _gemini_error("auth", 403, "PERMISSION_DENIED", "The caller does not have permission"),
    "400_invalid": _gemini_error("failed", 400, "INVALID_ARGUMENT", "contents is not specified"),
    "404_model": _gemini_error(
        "failed", 404, "NOT_FOUND", "models/{model} is not found for API version v1beta, or is not supported."
    ),
    "midstream_overloaded": midstream(_GEMINI_OVERLOADED),
    **ENDINGS,
}


# -- all of them ---------------------------------------------------------------------------------------


TABLES: dict[ProtocolName, dict[str, ProviderError]] = {
    "anthropic": ANTHROPIC,
    "openai-chat": OPENAI,
    "openai-responses": OPENAI,
    "gemini": GEMINI,
}
NAMES = frozenset().union(*TABLES.values())


def find_error(protocol: ProtocolName, name: str) -> ProviderError:
    """Return the protocol's error of that name, or its first one of the same kind and place in the exchange."""
    table = TABLES[protocol]
    if name in table:
        return table[name]
    meant = next(other[name] for other in TABLES.values() if name in other)
    same_kind = [error for error in table.values() if error.kind == meant.kind]
    same_place = [error for error in same_kind if error.place == meant.place]
    return [*same_place, *same_kind, *table.values()][0]


def refuse(protocol: ProtocolName, name: str, facts: ErrorFacts) -> ProviderError:
    """Return the error of that name in the shape of `protocol`, with its numbers filled in."""
    error = find_error(protocol, name)
    values = spell(facts)
    headers = {key: str(value) for key, value in fill(error.headers, values).items()}
    return msgspec.structs.replace(error, name=name, headers=headers, body=fill(error.body, values))
