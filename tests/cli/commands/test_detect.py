"""`paceline detect`: what was understood, in words and as JSON."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.cli.commands.detection import KEPT_BYTES
from paceline.cli.main import app

RECORDED = Path(__file__).parents[2] / "detect" / "samples" / "recorded"
NOON = ["--seen-at", "2026-11-15T12:00:00Z", "--tz", "UTC"]


def ask(runner: CliRunner, text: str | bytes, *options: str) -> str:
    result = runner.invoke(app, ["detect", "-", *NOON, *options], input=text)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_a_spent_window_is_reported_with_its_reset_in_both_ways(runner: CliRunner) -> None:
    said = ask(runner, "You've hit your session limit · resets 3pm (Europe/Paris)")

    assert "Quota window spent" in said
    assert "2026-11-15 14:00:00 UTC, in 2 h 00 min" in said
    assert "window 5 hours" in said
    assert "the whole account" in said
    assert "read from a sentence" in said
    assert "rules: " in said


def test_a_clock_time_without_a_zone_is_read_in_the_given_one(runner: CliRunner) -> None:
    said = ask(runner, "You've hit your session limit · resets 3pm", "--tz", "America/New_York")

    assert "2026-11-15 15:00:00 EST, in 8 h 00 min" in said.replace("in 480 min", "in 8 h 00 min")


def test_an_http_answer_is_read_with_its_status_and_headers(runner: CliRunner) -> None:
    body = '{"type":"error","error":{"type":"rate_limit_error","message":"slow down [bold]"}}'

    said = ask(runner, body, "--provider", "anthropic-api", "--status", "429", "-H", "retry-after: 30")

    assert "Rate limited" in said
    assert "2026-11-15 12:00:30 UTC, in 30 s" in said
    assert "read from a response header" in said


def test_a_platform_limit_is_reported_with_its_numbers(runner: CliRunner) -> None:
    said = ask(
        runner, "Error: max active children for this session (5/5)", "--provider", "openclaw", "--channel", "stderr"
    )

    assert "Platform limit reached limit 5 in use 5" in said


def test_what_says_nothing_points_to_report(runner: CliRunner) -> None:
    said = ask(runner, "all is well")

    assert "Nothing about limits was recognised (read as generic)" in said
    assert "paceline report" in said


def test_json_has_the_signals_their_rules_and_the_question(runner: CliRunner) -> None:
    answer = json.loads(ask(runner, "Claude AI usage limit reached|1794758400", "--provider", "claude-code", "--json"))

    assert answer["recognised"] is True
    assert answer["signals"][0]["type"] == "QuotaClosed"
    assert answer["signals"][0]["resets_at"] == 1794758400.0
    assert answer["rules"]
    assert answer["provider"] == "claude-code"
    assert answer["channel"] == "screen"
    assert answer["seen_at"] == 1794744000.0


def test_json_for_nothing_is_an_empty_list(runner: CliRunner) -> None:
    answer = json.loads(ask(runner, "", "--json"))

    assert answer["recognised"] is False
    assert answer["signals"] == []


def test_of_a_huge_file_both_ends_are_read(runner: CliRunner, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_bytes(b"quiet line\n" * 100_000 + b"Claude AI usage limit reached|1794758400\n")

    result = runner.invoke(app, ["detect", str(log), *NOON, "--json"])

    answer = json.loads(result.stdout)
    assert answer["recognised"] is True
    assert answer["bytes_left_out"] > 1_100_000 - 2 * KEPT_BYTES - 100


def test_a_whole_run_is_concluded(runner: CliRunner) -> None:
    run = next(RECORDED.glob("claude*/*429*.out"))
    meta = json.loads(run.with_suffix(".meta.json").read_text())

    options = [
        "--provider",
        "claude-code",
        "--exit-code",
        str(meta["exit_code"]),
        "--stderr",
        str(run.with_suffix(".err")),
    ]
    result = runner.invoke(app, ["detect", str(run), "--stream", *NOON, *options, "--json"])

    answer = json.loads(result.stdout)
    assert answer["outcome"] == meta["outcome"]
    assert answer["session_id"]


def test_a_whole_run_is_reported_in_words(runner: CliRunner) -> None:
    event = '{"type":"system","subtype":"init","session_id":"s-1","apiKeySource":"ANTHROPIC_API_KEY"}\n'
    result = '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"ok"}\n'

    said = ask(runner, event + result, "--stream", "--provider", "claude-code", "--exit-code", "0")

    assert "Outcome: success (the work is done)" in said
    assert "session s-1" in said
    assert "paid by an API key" in said


def test_words_from_outside_cannot_steer_the_terminal(runner: CliRunner) -> None:
    event = json.dumps({"type": "system", "subtype": "init", "session_id": "a\x1b]0;owned\x07b[red]", "cwd": "/"})

    said = ask(runner, event, "--stream", "--provider", "claude-code")

    assert "\x1b" not in said
    assert "[red]" in said


@pytest.mark.parametrize("options", [[], ["--json"], ["--stream", "--provider", "claude-code"]])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(noise=st.binary(max_size=300))
def test_any_bytes_are_read_without_a_fault(runner: CliRunner, options: list[str], noise: bytes) -> None:
    result = runner.invoke(app, ["detect", "-", *NOON, *options], input=noise)

    assert result.exit_code == 0
    assert result.exception is None
