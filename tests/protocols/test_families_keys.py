"""Keys: found in every position, moved to the position that the provider expects, and distinguished from logins."""

import base64
import json

import pytest

from paceline.protocols import PresentedKey, key_position, login_refusal, presented_keys, with_key
from paceline.protocols.families import KeyPosition


@pytest.mark.parametrize(
    ("headers", "target", "expected"),
    [
        ([(b"x-api-key", b"k")], b"/v1/messages", [PresentedKey(b"k", "x-api-key")]),
        ([(b"authorization", b"Bearer k")], b"/v1/responses", [PresentedKey(b"k", "authorization")]),
        ([(b"authorization", b"bearer  k ")], b"/", [PresentedKey(b"k", "authorization")]),
        ([(b"x-goog-api-key", b" k ")], b"/v1beta/models", [PresentedKey(b"k", "x-goog-api-key")]),
        ([(b"api-key", b"k")], b"/", [PresentedKey(b"k", "api-key")]),
        ([], b"/v1beta/models?alt=sse&key=k%2B1", [PresentedKey(b"k+1", "query")]),
        ([], b"/v1beta/models?monkey=1", []),
        ([(b"authorization", b"Basic k")], b"/", []),
        ([(b"x-api-key", b"")], b"/?key=", []),
        (
            [(b"authorization", b"Bearer b"), (b"x-api-key", b"a")],
            b"/?key=c",
            [PresentedKey(b"b", "authorization"), PresentedKey(b"a", "x-api-key"), PresentedKey(b"c", "query")],
        ),
    ],
)
def test_a_key_is_found_in_every_position(
    headers: list[tuple[bytes, bytes]], target: bytes, expected: list[PresentedKey]
) -> None:
    assert presented_keys(headers, target) == expected


def test_the_accounts_key_replaces_every_key_of_the_client() -> None:
    headers = [(b"accept", b"*/*"), (b"authorization", b"Bearer t"), (b"x-api-key", b"t"), (b"user-agent", b"u")]
    target = b"/v1/messages?beta=true&key=t&b=%20"

    assert with_key(headers, target, b"real", "x-api-key") == (
        [(b"accept", b"*/*"), (b"user-agent", b"u"), (b"x-api-key", b"real")],
        b"/v1/messages?beta=true&b=%20",
    )
    assert with_key(headers, b"/v1", b"real", "authorization")[0][-1] == (b"authorization", b"Bearer real")
    assert with_key([], b"/v1?key=t", b"real", "x-goog-api-key") == ([(b"x-goog-api-key", b"real")], b"/v1")
    assert with_key([], b"/v1?a=1&key=t&b=2", b"re&l", "query") == ([], b"/v1?a=1&key=re%26l&b=2")


@pytest.mark.parametrize("position", ["x-api-key", "authorization", "query"])
def test_an_account_without_a_key_sends_none(position: KeyPosition) -> None:
    headers = [(b"accept", b"*/*"), (b"authorization", b"Bearer t")]

    assert with_key(headers, b"/v1?key=t", b"", position) == ([(b"accept", b"*/*")], b"/v1")


def test_each_provider_gets_its_key_where_it_wants_it() -> None:
    assert [
        key_position("anthropic", "anthropic", "authorization"),
        key_position("anthropic", "openai", "x-api-key"),
        key_position("gemini", "gemini", "query"),
        key_position("google", "openai", "authorization"),
        key_position("openai", "openai", "x-api-key"),
        key_position("azure-openai", "openai"),
        key_position("openrouter", "anthropic", "authorization"),
        key_position("zai", "anthropic", "x-api-key"),
        key_position("vllm", "openai", "x-api-key"),
    ] == [
        "x-api-key",
        "authorization",
        "x-goog-api-key",
        "authorization",
        "authorization",
        "api-key",
        "authorization",
        "x-api-key",
        "authorization",
    ]


def jwt(claims: dict[str, object]) -> bytes:
    parts = [json.dumps(part).encode() for part in ({"alg": "RS256"}, claims)]
    return b".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts), b"c2ln"])


CHATGPT = jwt({"https://api.openai.com/auth": {"chatgpt_account_id": "a"}})


@pytest.mark.parametrize(
    ("key", "provider"),
    [
        (b"sk-ant-oat01-abc", "anthropic"),
        (b"sk-ant-ort01-abc", "openrouter"),
        (b"ya29.a0Af", "gemini"),
        (CHATGPT, "openai"),
        (CHATGPT, "vllm"),
        (jwt({}), "openai"),
        (b"gho_abc", "github"),
    ],
)
def test_a_subscriptions_login_is_refused_with_what_to_use_instead(key: bytes, provider: str) -> None:
    refusal = login_refusal(key, provider)

    assert refusal is not None
    assert "paceline run" in refusal
    assert key.decode() not in refusal


@pytest.mark.parametrize(
    ("key", "provider"),
    [
        (b"sk-ant-api03-abc", "anthropic"),
        (b"sk-proj-abc", "openai"),
        (b"AIzaSy-abc", "gemini"),
        (b"ya29.a0Af", "vertex"),
        (jwt({"iss": "https://my.company"}), "vllm"),
        (b"eyJ.!.x", "vllm"),
        (b"", "openai"),
    ],
)
def test_an_api_key_is_not_taken_for_a_login(key: bytes, provider: str) -> None:
    assert login_refusal(key, provider) is None
