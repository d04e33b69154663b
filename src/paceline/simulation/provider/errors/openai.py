"""The refusals of the OpenAI API, of Codex and of compatible servers. Data only."""

from paceline.simulation.provider.errors.shape import ENDINGS, RETRY_AFTER, Kind, ProviderError, midstream, with_headers


def _error(kind: Kind, status: int, type_: str | None, code: str | None, message: str) -> ProviderError:
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
_TOKENS_PER_MINUTE = _error(
    "rate_limit",
    429,
    "tokens",
    "rate_limit_exceeded",
    "Rate limit reached for {model} in organization org-fake on tokens per min (TPM): Limit {limit}, Used {in_use}, "
    "Requested 5000. Please try again in {retry_after_go}. "
    "Visit https://platform.openai.com/account/rate-limits to learn more.",
)
_INSUFFICIENT = _error(
    "billing",
    429,
    "insufficient_quota",
    "insufficient_quota",
    "You exceeded your current quota, please check your plan and billing details. "
    "For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
)
_OVERLOADED = _error(
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
        _error(
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
    "429_plain": _error(
        "rate_limit", 429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached for requests."
    ),
    "429_starts": with_headers(
        _error(
            "rate_limit",
            429,
            "requests",
            "slow_down",
            "You are sending requests too quickly. Reduce your request rate to its original level and increase it "
            "gradually.",
        ),
        RETRY_AFTER,
    ),
    "429_dashscope": _error(
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
    "429_zai_5h": _error(
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
    "429_concurrency": _error(
        "platform_limit",
        429,
        "rate_limit_reached_error",
        None,
        "Your account org-fake<ak-fake> request reached max organization concurrency: {limit}, "
        "please try again after {retry_after} seconds",
    ),
    "429_zai_concurrency": _error(
        "platform_limit",
        429,
        None,
        "1302",
        "High concurrency usage of this API, please reduce concurrency or contact customer service to increase limits",
    ),
    "423": with_headers(_error("platform_limit", 423, "locked", "locked", "All sessions are in use."), RETRY_AFTER),
    "503": _OVERLOADED,
    "500": _error(
        "overloaded", 500, "server_error", None, "The server had an error while processing your request. Sorry!"
    ),
    "429_overloaded": _error(
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
    "402": _error("billing", 402, None, "402", "Insufficient credits. Add more using the account's settings."),
    "429_usage_not_included": _error(
        "billing", 429, "usage_not_included", None, "To use Codex with your ChatGPT plan, upgrade to Plus."
    ),
    "429_no_balance": _error(
        "billing", 429, None, "1113", "Insufficient balance or no resource package. Please recharge."
    ),
    "400_budget": _error(
        "billing", 400, "auth_error", "400", "Budget has been exceeded! Current cost: 0.0010747, Max budget: 0.0"
    ),
    "401": _error(
        "auth",
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-fake. You can find your API key at https://platform.openai.com/account/api-keys.",
    ),
    "403": _error(
        "auth",
        403,
        "request_forbidden",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    "400_invalid": _error("failed", 400, "invalid_request_error", "invalid_type", "Invalid type for 'messages'."),
    "404_model": _error(
        "failed", 404, "invalid_request_error", "model_not_found", "The model `{model}` does not exist."
    ),
    "midstream_rate_limit": midstream(_TOKENS_PER_MINUTE),
    "midstream_quota": midstream(_INSUFFICIENT),
    "midstream_overloaded": midstream(_OVERLOADED),
    **ENDINGS,
}
