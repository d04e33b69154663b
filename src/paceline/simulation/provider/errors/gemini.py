"""The refusals of the Gemini API and of the services behind the Gemini CLI. Data only."""

from paceline.simulation.provider.errors.shape import ENDINGS, Kind, ProviderError, midstream
from paceline.simulation.provider.protocol_module import Json


def _error(kind: Kind, code: int, status: str, message: str, *details: Json) -> ProviderError:
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
    return _error(kind, 429, "RESOURCE_EXHAUSTED", message, *details, retry)


_PER_MINUTE = _quota_error(
    "rate_limit",
    "{limit}",
    "{retry_after_go}",
    _quota_failure("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "{limit}"),
)
_OVERLOADED = _error("overloaded", 503, "UNAVAILABLE", "The model is overloaded. Please try again later.")

GEMINI: dict[str, ProviderError] = {
    "429_retry_after": _PER_MINUTE,
    "429_retryinfo": _PER_MINUTE,
    "429_plain": _error("rate_limit", 429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "429_perday": _quota_error(
        "quota_window",
        "{limit}",
        "{resets_in}s",
        _quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "{limit}"),
    ),
    "429_capacity": _error(
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
    "503": _OVERLOADED,
    "500": _error(
        "overloaded",
        500,
        "INTERNAL",
        "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting",
    ),
    "401": _error(
        "auth",
        401,
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
    ),
    "400_api_key": _error(
        "auth",
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        {"@type": f"{_RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"},
    ),
    "403": _error("auth", 403, "PERMISSION_DENIED", "The caller does not have permission"),
    "400_invalid": _error("failed", 400, "INVALID_ARGUMENT", "contents is not specified"),
    "404_model": _error(
        "failed", 404, "NOT_FOUND", "models/{model} is not found for API version v1beta, or is not supported."
    ),
    "midstream_overloaded": midstream(_OVERLOADED),
    **ENDINGS,
}
