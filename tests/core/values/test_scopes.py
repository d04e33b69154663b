"""Names of scopes: one spelling per thing, malformed ones refused by name."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.core.values.scopes import (
    ScopePattern,
    canonical_model,
    canonical_scope,
    is_provider_scope,
    path_scopes,
    scope_reached,
)
from paceline.errors import InvalidScope

OPUS_SPELLINGS = (
    "opus-4-6",
    "claude-opus-4-6",
    "claude-opus-4-6-20260105",
    "claude-opus-4-6-latest",
    "claude-opus-4-6@20260105",
    "claude-opus-4.6",
    "anthropic/claude-opus-4-6",
    "anthropic/claude-opus-4-6-20260105",
    "us.anthropic.claude-opus-4-6-20260105-v1:0",
    "anthropic.claude-opus-4-6-20260105-v1:0",
    "Claude-Opus-4-6",
    "claude-opus-4-6[1m]",
)

parts = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,15}", fullmatch=True)
provider_paths = st.lists(parts, min_size=1, max_size=3).map("/".join)
labelled = st.builds(
    "{}:{}".format, st.sampled_from(["campaign", "agent"]), st.from_regex(r"[A-Za-z0-9 ._-]{1,20}", fullmatch=True)
)
hosts = st.from_regex(r"host:[A-Za-z0-9][A-Za-z0-9._-]{0,19}", fullmatch=True)
scopes = st.one_of(st.sampled_from(["sessions", "runs"]), labelled, hosts, provider_paths)


@pytest.mark.parametrize("spelling", OPUS_SPELLINGS)
def test_spellings_of_one_model_are_one_scope(spelling: str) -> None:
    assert canonical_scope(f"anthropic/max-1/{spelling}") == "anthropic/max-1/opus-4-6"


@pytest.mark.parametrize(
    ("spelling", "model"),
    [
        ("claude-3-5-sonnet-20241022", "sonnet-3-5"),
        ("claude-3-opus-20240229", "opus-3"),
        ("claude-sonnet-4-20250514", "sonnet-4"),
        ("claude-haiku-4-5-20251001", "haiku-4-5"),
        ("gpt-5.1-2025-11-13", "gpt-5.1"),
        ("openai/gpt-5.1", "gpt-5.1"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-pro-latest", "gemini-2.5-pro"),
        ("opus[1m]", "opus"),
        ("claude-opus", "opus"),
        ("opusplan", "opus"),
        ("best", "default"),
        ("auto", "default"),
    ],
)
def test_other_spellings(spelling: str, model: str) -> None:
    assert canonical_model(spelling) == model


def test_different_models_stay_different() -> None:
    names = [
        "deepseek-v2",
        "deepseek-v3",
        "qwen3:8",
        "qwen3:32",
        "titan-embed-text-v1:0",
        "titan-embed-text-v2:0",
        "opus-4-5",
        "opus-4-6",
        "sonnet-4-5",
        "opus-4",
        "haiku-4-5",
        "gpt-5",
        "gpt-5-mini",
        "gpt-5.1",
        "o3",
        "o3-mini",
    ]
    assert [canonical_model(name) for name in names] == names


@example("/ 0")
@example("claude- claude-opus-4-6")
@given(st.text(max_size=60))
def test_a_canonical_model_is_its_own_canonical_name(name: str) -> None:
    once = canonical_model(name)
    assert canonical_model(once) == once


@given(scopes)
def test_a_canonical_scope_is_its_own_canonical_name(scope: str) -> None:
    once = canonical_scope(scope)
    assert canonical_scope(once) == once


def shown(name: object) -> str:
    return repr(name) if len(repr(name)) <= 80 else repr(name)[:77] + "..."


def refusal_of(name: object) -> str | None:
    try:
        canonical_scope(name)  # type: ignore[arg-type]
    except InvalidScope as error:
        return str(error)
    return None


@given(st.one_of(st.text(max_size=400), st.none(), st.integers(), st.binary(max_size=5)))
def test_any_name_is_taken_or_refused_with_its_value(name: object) -> None:
    refusal = refusal_of(name)
    assert refusal is None or shown(name) in refusal


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        " a",
        "a b",
        "a/b/",
        "campaign:",
        "agent:",
        "other:name",
        "a\x00b",
        "x" * 301,
        "a\n",
        "é",
    ],
)
def test_malformed_names_are_refused_with_a_message_that_names_them(name: str) -> None:
    assert shown(name) in str(refusal_of(name))


@given(provider_paths)
def test_a_path_lies_in_each_of_its_prefixes(path: str) -> None:
    inside = path_scopes(path)
    assert inside[-1] == canonical_scope(path)
    assert [scope.count("/") for scope in inside] == list(range(len(inside)))
    assert all(inner.startswith(outer + "/") for outer, inner in pairwise(inside))


@pytest.mark.parametrize("name", ["sessions", "runs", "campaign:docs", "agent:one"])
def test_the_users_own_scopes_are_no_provider_paths(name: str) -> None:
    assert not is_provider_scope(name)
    with pytest.raises(InvalidScope, match=name):
        path_scopes(name)


@pytest.mark.parametrize(
    ("reach", "reached"),
    [
        (None, "anthropic/max-1/opus-4-6"),
        ("model", "anthropic/max-1/opus-4-6"),
        ("account", "anthropic/max-1"),
        ("provider", "anthropic"),
    ],
)
def test_a_signal_reaches_as_far_as_it_says(reach: str | None, reached: str) -> None:
    assert scope_reached("anthropic/max-1/opus-4-6", reach) == reached  # type: ignore[arg-type]


def test_a_signal_never_reaches_deeper_than_it_was_seen() -> None:
    assert scope_reached("anthropic", "model") == "anthropic"
    assert scope_reached("runs", "provider") == "runs"


@pytest.mark.parametrize(
    ("pattern", "scope", "matches"),
    [
        ("anthropic/*/opus-*", "anthropic/max-1/opus-4-6", True),
        ("anthropic/*/opus-*", "anthropic/max-2/opus-4-5", True),
        ("anthropic/*/claude-opus-*", "anthropic/max-2/opus-4-5", True),
        ("anthropic/*/opus-*", "anthropic/max-1/sonnet-4-5", False),
        ("anthropic/*/opus-*", "anthropic/max-1", False),
        ("anthropic/*", "anthropic/max-1", True),
        ("anthropic/*", "anthropic/max-1/opus-4-6", False),
        ("anthropic", "anthropic", True),
        ("anthropic/max-?", "anthropic/max-1", True),
        ("anthropic/max-?", "anthropic/max-12", False),
        ("campaign:*", "campaign:docs", True),
        ("*", "umans", True),
    ],
)
def test_each_part_of_a_pattern_is_matched_on_its_own(pattern: str, scope: str, matches: bool) -> None:
    assert ScopePattern(pattern).matches(scope) is matches


@given(provider_paths)
def test_a_name_without_wildcards_is_an_exact_pattern_of_itself(path: str) -> None:
    pattern = ScopePattern(path)
    assert pattern.is_exact
    assert pattern.matches(canonical_scope(path))


@pytest.mark.parametrize("pattern", ["", "/*", "*/", "a//*", "a b*", "*" * 301, None, 5])
def test_malformed_patterns_are_refused(pattern: object) -> None:
    with pytest.raises(InvalidScope):
        ScopePattern(pattern)  # type: ignore[arg-type]


def test_a_bare_wildcard_stands_for_providers_not_for_the_global_pool() -> None:
    pattern = ScopePattern("*")

    matched = [scope for scope in ("umans", "sessions", "runs", "campaign:x", "agent:claude") if pattern.matches(scope)]

    assert matched == ["umans"]


@pytest.mark.parametrize(
    "pattern",
    [
        *(f"anthropic/*/{spelling}" for spelling in OPUS_SPELLINGS),
        "anthropic/*/claude-opus-*",
        "anthropic/*/claude-opus-4-*",
        "anthropic/*/claude-opus-4.*",
        "anthropic/*/claude-opus-4.6*",
        "anthropic/*/claude-opus-4-6-*",
        "anthropic/*/claude-opus-4-6@*",
        "anthropic/*/claude-opus-4-6-2026*",
        "anthropic/*/claude-opus-*-20260105",
        "anthropic/*/us.anthropic.claude-opus-*-v1:0",
        "anthropic/max-?/anthropic/claude-opus-*",
    ],
)
def test_a_pattern_holds_whatever_way_it_spells_the_model(pattern: str) -> None:
    """A cap that is spelled as the provider spells the model was never met, and let everybody past."""
    found = ScopePattern(pattern)
    assert found.matches(canonical_scope("anthropic/max-1/claude-opus-4-6-20260105"))
    assert not found.matches("anthropic/max-1/sonnet-4-6")
    assert ScopePattern(found.text).text == found.text


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("claude-3-5-sonnet*", "claude-3-5-sonnet-20241022"),
        ("claude-3-5-sonnet-*", "claude-3-5-sonnet-20241022"),
        ("gpt-5.1-2025*", "gpt-5.1-2025-11-13"),
        ("openai/gpt-5*", "gpt-5-mini"),
    ],
)
def test_patterns_of_other_models_follow_their_canonical_names(pattern: str, model: str) -> None:
    assert ScopePattern(f"some/*/{pattern}").matches(canonical_scope(f"some/account/{model}"))


@pytest.mark.parametrize("scope", [[], {}, None, 5, 1.5, True, b"umans", object()])
def test_what_is_no_text_is_no_scope(scope: object) -> None:
    with pytest.raises(InvalidScope):
        canonical_scope(scope)  # type: ignore[arg-type]
    with pytest.raises(InvalidScope):
        path_scopes(scope)  # type: ignore[arg-type]
    with pytest.raises(InvalidScope):
        ScopePattern(scope)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "model", "counts"),
    [
        ("anthropic/*/opus-*", "opus", True),
        ("anthropic/*/opus-*", "opus[1m]", True),
        ("anthropic/*/opus-*", "opus-4-6", True),
        ("anthropic/*/opus-*", "claude-opus-4-6", True),
        ("anthropic/*/opus-*", "us.anthropic.claude-opus-4-6-v1:0", True),
        ("anthropic/*/claude-opus-*", "opus", True),
        ("anthropic/*/sonnet-*", "sonnet", True),
        ("anthropic/*/haiku-*", "haiku", True),
        ("anthropic/*/gpt-5-*", "gpt-5", True),
        ("anthropic/*/opus-*", "sonnet", False),
        ("anthropic/*/opus-*", "opusx", False),
        ("anthropic/*/opus-4-*", "opus", False),
        ("anthropic/max-*", "opus", False),
    ],
)
def test_an_alias_counts_under_the_cap_of_its_family(pattern: str, model: str, counts: bool) -> None:
    assert ScopePattern(pattern).matches(canonical_scope(f"anthropic/max-1/{model}")) is counts


def test_only_the_part_of_the_model_knows_aliases() -> None:
    assert not ScopePattern("anthropic/max-*").matches("anthropic/max")
    assert not ScopePattern("anthropic/max-*/opus-*").matches("anthropic/max/opus")


def test_a_host_is_a_scope_of_the_users_own() -> None:
    assert canonical_scope("host:box-1.example") == "host:box-1.example"
    assert not is_provider_scope("host:box1")
    assert ScopePattern("host:gpu*").matches("host:gpu-1")
    assert not ScopePattern("*").matches("host:box1")


@pytest.mark.parametrize("name", ["host:", "host:a#b", "host:a/b", "host:a b", "host:-a"])
def test_a_host_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidScope, match="a host has a name of letters, digits and"):
        canonical_scope(name)
