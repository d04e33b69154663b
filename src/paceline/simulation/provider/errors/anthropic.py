"""The refusals of the Anthropic API, API keys and subscriptions (`unified`) alike. Data only."""

from paceline.simulation.provider.errors.shape import (
    CLAIMS,
    ENDINGS,
    RETRY_AFTER,
    Kind,
    ProviderError,
    midstream,
    with_headers,
)


def _error(kind: Kind, status: int, type_: str, message: str) -> ProviderError:
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


_OVERLOADED = with_headers(_error("overloaded", 529, "overloaded_error", "Overloaded"), {"x-should-retry": "true"})
_RATE = _error(
    "rate_limit",
    429,
    "rate_limit_error",
    "This request would exceed your organization's rate limit of {limit} requests per minute.",
)
_OVER_ACCOUNT = "This request would exceed your account's rate limit. Please try again later."
_QUOTA = _error("quota_window", 429, "rate_limit_error", _OVER_ACCOUNT)

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
        _error(
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
        _error(
            "rate_limit",
            429,
            "rate_limit_error",
            "This request would exceed your organization's maximum usage increase rate for requests per minute. "
            "Please scale up your usage more gradually to stay within the acceleration limit.",
        ),
        RETRY_AFTER,
    ),
    "429_burst": with_headers(
        _error("rate_limit", 429, "rate_limit_error", _OVER_ACCOUNT),
        {f"{_UNIFIED}-status": "allowed", f"{_UNIFIED}-{{window}}-status": "allowed"},
    ),
    "429_unified": with_headers(_QUOTA, _rejected("{window}", "{claim}")),
    "429_unified_7d": with_headers(_QUOTA, _rejected("7d")),
    "429_unified_7d_opus": with_headers(_QUOTA, _rejected("7d_opus")),
    "429_concurrency": _error(
        "platform_limit",
        429,
        "rate_limit_error",
        "Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales at "
        "https://www.anthropic.com/contact-sales to discuss your options for a rate limit increase.",
    ),
    "429_concurrency_limit": _error(
        "platform_limit", 429, "rate_limit_error", "Too many concurrent requests. Limit: {limit} concurrent requests"
    ),
    "529": _OVERLOADED,
    "529_retry_after": with_headers(_OVERLOADED, RETRY_AFTER),
    "503": _error("overloaded", 503, "api_error", "Service unavailable"),
    "500": _error("overloaded", 500, "api_error", "Internal server error"),
    "500_overloaded": _error("overloaded", 500, "api_error", "Overloaded"),
    "504": _error("overloaded", 504, "timeout_error", "Request timed out"),
    "400_credit": _error(
        "billing",
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    "400_usage_limits": _error(
        "billing",
        400,
        "invalid_request_error",
        "You have reached your specified API usage limits. You will regain access on {resets_date} at 00:00 UTC.",
    ),
    "402": _error("billing", 402, "billing_error", "There is an issue with your billing or payment information."),
    "429_long_context": _error(
        "billing", 429, "rate_limit_error", "Extra usage is required for long context requests."
    ),
    "429_out_of_credits": with_headers(
        _error("billing", 429, "rate_limit_error", _OVER_ACCOUNT),
        {f"{_UNIFIED}-status": "rejected", f"{_UNIFIED}-overage-disabled-reason": "out_of_credits"},
    ),
    "401": _error("auth", 401, "authentication_error", "invalid x-api-key"),
    "401_expired": _error(
        "auth",
        401,
        "authentication_error",
        "OAuth token has expired. Please obtain a new token or refresh your existing token.",
    ),
    "403": _error("auth", 403, "permission_error", "Your API key does not have permission to use the resource."),
    "400_invalid": _error("failed", 400, "invalid_request_error", "messages: at least one message is required"),
    "404_model": _error("failed", 404, "not_found_error", "model: {model}"),
    "413": _error("failed", 413, "request_too_large", "Request exceeds the maximum size"),
    "midstream_overloaded": midstream(_OVERLOADED),
    "midstream_rate_limit": midstream(_RATE),
    **ENDINGS,
}
