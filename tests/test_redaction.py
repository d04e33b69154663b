"""Redaction: secrets of many shapes never survive, and what describes a limit does."""

import json
import random
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.detect import Observation, detect
from paceline.redaction import Redactor, readable

RECORDED = Path(__file__).parent / "detect" / "samples" / "recorded"
ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "base64url": string.ascii_letters + string.digits + "-_",
    "base64": string.ascii_letters + string.digits + "+/",
    "hex": string.hexdigits.lower(),
}
PREFIXES = (
    "sk-ant-api03-", "sk-ant-oat01-", "sk-proj-", "sk-or-v1-", "sk-", "gsk_", "hf_", "xai-", "ghp_", "gho_", "glpat-",
    "github_pat_", "npm_", "xoxb-", "xapp-", "AKIA", "AIza", "ya29.", "pplx-", "nvapi-", "whsec_", "Bearer ", "Basic ",
)  # fmt: skip
NAMES = (
    "ANTHROPIC_API_KEY", "api_key", "apiKey", "x-api-key", "password", "DB_PASSWORD", "client_secret", "access_token",
    "refreshToken", "aws_secret_access_key", "session_token", "credentials", "secret",
)  # fmt: skip
FORMS = (
    "{name}={value}",
    "{name}: {value}",
    '"{name}": "{value}"',
    "'{name}': '{value}'",
    '\\"{name}\\":\\"{value}\\"',
)
AROUND = ("{}", "error: {}", "│ {} │", '{{"message": "{}"}}', "see ({}), then", "\x1b[31m{}\x1b[0m", "a\n  {}\nb")

redact = Redactor().redact


def drawn(seed: int, alphabet: str, length: int) -> str:
    """As random as a real key: hypothesis likes `AAAA`, which no provider ever gave out."""
    dice = random.Random(seed)
    return "".join(dice.choices(ALPHABETS[alphabet], k=length))


seeds = st.integers(0, 2**32)


@settings(derandomize=True)
@given(seeds, st.sampled_from(sorted(ALPHABETS)), st.integers(32, 200), st.sampled_from(AROUND))
def test_a_bare_key_that_nobody_has_seen_before_does_not_survive(
    seed: int, alphabet: str, length: int, around: str
) -> None:
    key = drawn(seed, alphabet, length)

    text = redact(around.format(key)).text

    assert key not in text
    assert key[: length // 2] not in text
    assert key[length // 2 :] not in text


@settings(derandomize=True)
@given(seeds, st.sampled_from(PREFIXES), st.integers(16, 120), st.sampled_from(AROUND))
def test_a_key_with_a_known_prefix_does_not_survive(seed: int, prefix: str, length: int, around: str) -> None:
    key = drawn(seed, "base62", length)

    text = redact(around.format(prefix + key)).text

    assert key not in text
    assert key[-12:] not in text


values = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="\"'\\,;<>{}[]"), min_size=5, max_size=60
)


@given(st.sampled_from(NAMES), values, st.sampled_from(FORMS))
def test_whatever_stands_behind_a_secret_name_does_not_survive(name: str, value: str, form: str) -> None:
    kept = redact("before " + form.format(name=name, value=value) + " after")

    assert value not in kept.text
    assert kept.text.startswith("before ")
    assert kept.counts


words = st.text(string.ascii_lowercase, min_size=2, max_size=12)


@given(
    words, words, st.sampled_from(("com", "io", "internal", "co.uk", "de")), st.sampled_from(("@", "%40", "\\u0040"))
)
def test_an_address_does_not_survive_in_any_spelling(user: str, host: str, tld: str, at: str) -> None:
    text = redact(f'{{"account": "{user}.x{at}{host}.{tld}"}} used up').text

    assert f"{user}.x" not in text
    assert f"{host}.{tld}" not in text
    assert "used up" in text


@given(words, words, values.filter(lambda value: not set("/?#@:") & set(value)), words)
def test_of_a_private_url_nothing_survives(user: str, host: str, password: str, path: str) -> None:
    text = redact(
        f"connecting to postgres://{user}x:{password}@{host}.corp.internal:5432/{path}xyz?sslmode=off failed"
    ).text

    assert text == "connecting to postgres://<host> failed"


@given(
    st.sampled_from(("/home/", "/Users/", "C:\\Users\\", "C:\\\\Users\\\\", "/export/home/", "/mnt/c/Users/")), words
)
def test_a_home_folder_does_not_survive(home: str, user: str) -> None:
    text = redact(f"cannot open {home}{user}q/work/plan.md: usage limit reached").text

    assert f"{user}q" not in text
    assert text.endswith("usage limit reached")


@pytest.mark.parametrize(
    ("shown", "secret"),
    [
        ("Cookie: sid=abc; csrftoken=defg; theme=dark", "csrftoken=defg"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("request 363ef42a-bd28-443f-a5bd-a9d0079a736c failed", "a9d0079a736c"),
        ("user 363EF42ABD28443FA5BDA9D0079A736C", "A9D0079A736C"),
        ("request_id: req_011CSHoEeqs5C35K2UUqR7Fy", "5C35K2"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("peer 10.12.13.14 closed", "10.12.13.14"),
        ("peer fe80::1ff:fe23:4567:890a closed", "4567:890a"),
        ("build-7.ci.acme.dev says", "acme"),
        ("alice@buildbox:~/src$ claude", "buildbox"),
        ("call +49 (30) 901820-55", "901820"),
        ("/Users/John Smith/code/x.py", "Smith"),
        ("~/secret-project/notes.md", "secret-project"),
        ("https://docs.anthropic.com/x?email=me&k=v", "email=me"),
        ("ht\u200btps://al:pw\u200b@git.acme.com/r", "acme"),
        ("sk-ant-api03-AAAAbbbbCCCC1111\n│ dddd2222EEEE3333 │ next", "dddd2222"),
        ("organization_uuid=abc-def", "abc-def"),
    ],
)
def test_these_do_not_survive(shown: str, secret: str) -> None:
    assert secret in shown
    assert secret not in redact(shown).text


def test_what_is_known_of_this_machine_does_not_survive_in_any_case() -> None:
    text = Redactor(["Wintermute", "hunter2!"]).redact("on wintermute with HUNTER2! in hand").text

    assert text == "on <known> with <known> in hand"


@pytest.mark.parametrize(
    "said",
    [
        "Claude AI usage limit reached|1748268000",
        "You've hit your session limit · resets 3pm (Europe/Paris)",
        "quota will reset after 4h28m20s",
        "GenerateContentFreeTierRequestsPerDayPerProjectPerModel-FreeTier",
        "model claude-opus-4-6-20260105 is limited until 2026-11-15T12:30:45Z",
        "anthropic-ratelimit-unified-5h-reset: 1794716365",
        "try again in 20ms (gpt-4o-mini, 200000 TPM)",
        "see https://www.anthropic.com/contact-sales",
        "RESOURCE_EXHAUSTED: max active children for this session (5/5)",
        "resets at 12:30:45, 1748268000000 ms",
        "您的账户已达到速率限制",
    ],
)
def test_what_describes_a_limit_is_kept(said: str) -> None:
    kept = redact(said)

    assert kept.text == said
    assert kept.counts == {}


def read(shown: str, seen_at: float) -> list[str]:
    return [type(signal).__name__ for signal in detect(Observation(channel="stderr", text=shown, seen_at=seen_at))]


def test_a_recorded_message_means_the_same_without_its_secrets() -> None:
    samples = sorted(RECORDED.glob("*/*.err"))
    assert len(samples) > 100

    for sample in samples:
        text = sample.read_text("utf-8", "replace")
        recorded_at = json.loads(sample.with_suffix(".meta.json").read_text())["recorded_at"]
        assert read(redact(text).text, recorded_at) == read(readable(text), recorded_at), sample


@given(st.text(max_size=400))
def test_any_text_can_be_redacted_and_again_without_change(text: str) -> None:
    once = redact(text).text

    assert redact(once).text == once
