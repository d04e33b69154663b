"""Errors in each provider's shape, read by the provider's SDK."""

from collections.abc import Callable

import anthropic
import httpx2
import openai
import pytest
from google import genai

from paceline.protocols import Family, error_body, error_headers


def answering(family: Family, status: int, sent: list[httpx2.Request]) -> httpx2.MockTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        body = error_body(family, status, "slot_timeout", "no slot within 600 s: work-key at its limit (4/4)")
        return httpx2.Response(status, headers=error_headers(status, retry_after=12.2), content=body)

    return httpx2.MockTransport(answer)


def ask_anthropic(transport: httpx2.BaseTransport) -> None:
    client = anthropic.Anthropic(api_key="k", base_url="http://x", http_client=httpx2.Client(transport=transport))
    client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}])


def ask_openai(transport: httpx2.BaseTransport) -> None:
    client = openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=httpx2.Client(transport=transport))
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def ask_gemini(transport: httpx2.BaseTransport) -> None:
    options = genai.types.HttpOptions(base_url="http://x", httpx_client=httpx2.Client(transport=transport))
    genai.Client(api_key="k", http_options=options).models.generate_content(model="m", contents="hi")


ASK: dict[Family, Callable[[httpx2.BaseTransport], None]] = {
    "anthropic": ask_anthropic,
    "openai": ask_openai,
    "gemini": ask_gemini,
}


@pytest.mark.parametrize(
    ("family", "status", "error"),
    [
        ("anthropic", 400, anthropic.BadRequestError),
        ("anthropic", 401, anthropic.AuthenticationError),
        ("anthropic", 403, anthropic.PermissionDeniedError),
        ("anthropic", 404, anthropic.NotFoundError),
        ("anthropic", 429, anthropic.RateLimitError),
        ("openai", 400, openai.BadRequestError),
        ("openai", 401, openai.AuthenticationError),
        ("openai", 403, openai.PermissionDeniedError),
        ("openai", 404, openai.NotFoundError),
        ("openai", 429, openai.RateLimitError),
        ("gemini", 401, genai.errors.ClientError),
        ("gemini", 429, genai.errors.ClientError),
        ("gemini", 502, genai.errors.ServerError),
    ],
)
def test_the_sdk_raises_its_own_error_at_once_and_shows_the_sentence(
    family: Family, status: int, error: type[Exception]
) -> None:
    sent: list[httpx2.Request] = []

    with pytest.raises(error) as raised:
        ASK[family](answering(family, status, sent))

    assert "work-key at its limit (4/4)" in str(raised.value)
    assert len(sent) == 1


def test_the_shapes_in_full() -> None:
    assert error_body("anthropic", 429, "slot_timeout", "m") == (
        b'{"type":"error","error":{"type":"rate_limit_error","message":"m"}}'
    )
    assert error_body("openai", 429, "slot_timeout", "m") == (
        b'{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"slot_timeout"}}'
    )
    assert error_body("gemini", 429, "slot_timeout", "m") == (
        b'{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":'
        b'[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"slot_timeout","domain":"paceline"}]}}'
    )
    assert error_headers(429, 0.2) == [
        (b"content-type", b"application/json"),
        (b"x-should-retry", b"false"),
        (b"retry-after", b"1"),
    ]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_server_errors_are_left_to_the_retries_of_the_sdk(status: int) -> None:
    assert error_headers(status) == [(b"content-type", b"application/json")]
