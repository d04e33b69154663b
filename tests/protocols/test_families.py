"""The protocol of a request, the model in its URL, and its scope."""

import tracemalloc

import pytest

from paceline.core.values.scopes import canonical_scope
from paceline.protocols import Family, detect_name, family_of, model_in_path, scope_of, takes_slot


@pytest.mark.parametrize(
    ("provider", "path", "family"),
    [
        ("anthropic", "/v1/messages", "anthropic"),
        ("anthropic", "/v1/messages/count_tokens", "anthropic"),
        ("anthropic", "/v1/models", "anthropic"),
        ("anthropic", "/v1/chat/completions", "openai"),
        ("openai", "/v1/responses", "openai"),
        ("openai", "/v1/models", "openai"),
        ("openai", "/v1/threads/t1/messages", "openai"),
        ("openrouter", "/api/v1/chat/completions", "openai"),
        ("openrouter", "/api/v1/messages", "anthropic"),
        ("vllm", "/v1/messages", "anthropic"),
        ("gemini", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini"),
        ("gemini", "/v1beta/openai/chat/completions", "openai"),
        ("google", "/v1beta/files", "gemini"),
        ("anything", "/", "openai"),
    ],
)
def test_the_path_decides_the_protocol_or_else_the_provider(provider: str, path: str, family: Family) -> None:
    assert family_of(provider, path) == family


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro"),
        ("/v1beta/models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:streamGenerateContent", "gemini-2.5-pro"),
        ("/v1beta/tunedModels/my-own%2B1:generateContent", "my-own+1"),
        ("/openai/deployments/gpt-5/chat/completions", "gpt-5"),
        ("/v1beta/models", None),
        ("/v1/messages", None),
    ],
)
def test_the_model_in_a_url(path: str, model: str | None) -> None:
    assert model_in_path(path) == model


@pytest.mark.parametrize(
    ("model", "scope"),
    [
        ("claude-opus-4-6-20260105", "anthropic/work/opus-4-6"),
        ("anthropic/claude-opus-4.6", "anthropic/work/opus-4-6"),
        ("meta-llama/Llama-3 8B!", "anthropic/work/llama-3-8b-"),
        ("~ü", "anthropic/work/unnamed"),
        ("", "anthropic/work/unnamed"),
        (None, "anthropic/work/unnamed"),
        ("x" * 1000, "anthropic/work/" + "x" * 120),
    ],
)
def test_every_model_has_a_scope_whatever_its_name(model: str | None, scope: str) -> None:
    assert canonical_scope(scope_of("anthropic", "work", model)) == scope


def test_detect_is_asked_by_the_names_it_knows() -> None:
    names = [detect_name(provider) for provider in ("anthropic", "openai", "gemini", "google", "openrouter", "vllm")]

    assert names == ["anthropic-api", "openai-api", "gemini-api", "gemini-api", "openrouter", "vllm"]


def test_paths_of_strangers_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            family_of("", f"/{number}/" + "x" * 50_000)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_requests_that_make_a_model_work_take_a_slot() -> None:
    counted = ["/v1/messages", "/v1/responses", "/v1beta/models/m:generateContent", "/v1/chat/completions"]
    free = ["/v1/messages/count_tokens", "/v1beta/models/m:countTokens", "/v1/files", "/v1/messages/batches/b/cancel"]

    assert [path for path in counted + free if takes_slot("POST", path)] == counted
    assert not takes_slot("GET", "/v1/models")
