"""Lists of models: what a name or pattern allows, and what it must not."""

import pytest

from paceline.core.values.scopes import is_listed, model_pattern


def allows(text: str, model: str, provider: str = "openrouter") -> bool:
    return is_listed((model_pattern(text),), model, provider)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("opus-4-6", "claude-opus-4-6-20260105"),
        ("claude-opus-4-6-20260105", "claude-opus-4-6"),
        ("claude-opus-4-6", "us.anthropic.claude-opus-4-6-20260105-v1:0"),
        ("claude-*", "claude-opus-4-6"),
        ("opus-*", "anthropic/claude-opus-4-6"),
        ("claude-opus-*", "opus-4-6"),
        ("claude-3-5-*", "claude-3-5-sonnet-20241022"),
        ("claude-opus-4-6-2026*", "claude-opus-4-6-20260105"),
        ("claude-opus-4-*", "claude-opus-4-20250514"),
        ("gpt-4o-*", "gpt-4o-2024-08-06"),
        ("gpt-5*", "openai/gpt-5-mini"),
        ("anthropic/*", "anthropic/claude-opus-4-6"),
        ("openai/gpt-5*", "openai/gpt-5-mini"),
        ("OpenAI/GPT-5", "openai/gpt-5-2026-01-01"),
        ("openrouter/openai/*", "openrouter/openai/gpt-5"),
        ("deepseek-v3", "deepseek/deepseek-v3"),
        ("*", "anything/at-all"),
    ],
)
def test_a_list_allows_each_spelling_of_its_models(text: str, model: str) -> None:
    assert allows(text, model)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("anthropic/*", "openai/gpt-5-pro"),
        ("anthropic/*", "gpt-5-pro"),
        ("openai/gpt-5*", "evil/gpt-5"),
        ("openai/gpt-5", "evil/openai/gpt-5"),
        ("deepseek-v2", "deepseek-v3"),
        ("deepseek-v2", "deepseek"),
        ("model-v1", "model-v2"),
        ("qwen3:8", "qwen3:32"),
        ("*-v3", "gpt-5"),
        ("claude-*", "gpt-5"),
        ("gpt-5", "gpt-5-pro"),
        ("gpt-5-2026*", "gpt-5-2025-08-07"),
        ("titan-embed-text-v1:0", "amazon.titan-embed-text-v2:0"),
    ],
)
def test_a_list_allows_no_other_model_or_vendor(text: str, model: str) -> None:
    assert not allows(text, model)


def test_a_plain_name_is_of_the_vendor_that_serves_it() -> None:
    assert allows("anthropic/claude-*", "claude-opus-4-6", "anthropic")
    assert not allows("anthropic/claude-*", "claude-opus-4-6", "bedrock")
