"""What agents print is stored without the secrets in it, and with everything that people read it for."""

from pathlib import Path

import pytest
from tests.cli.conftest import Workspace
from tests.cli.conftest import runner as runner
from tests.cli.conftest import workspace as workspace

from paceline.core.signals import AuthFailed
from paceline.redaction import signal_without_secrets, without_secrets
from paceline.store.rules import storable_result
from paceline.store.unit_result import EndRequest, UnitResult

SECRETS = (
    "sk-ant-api03-Qm8xT2vLk9Rw4Zp7",
    "sk-proj-Qm8xT2vLk9Rw4Zp7",
    "ghp_Qm8xT2vLk9Rw4Zp7Qm8xT2vLk9Rw4Zp7",
    "AKIAQM8XT2VLK9RW4ZP7",
    "AIzaQm8xT2vLk9Rw4Zp7Qm8xT2vLk9Rw4Zp7",
    "xoxb-2345678901-Qm8xT2vLk9Rw",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.Qm8xT2vLk9Rw4Zp7",
    "Qm8xT2vLk9Rw4Zp7/Qm8xT2vLk9Rw4Zp7+b1N6c",
)
"""Keys that are found by themselves."""
NAMED = {
    "api_key = {}": "hunter2hunter",
    '{{"apiKey": "{}"}}': "correcthorse",
    "export DB_PASSWORD={}": "correcthorse",
    "AWS_SECRET_ACCESS_KEY: {}": "Qm8xT2vLk9Rw",
    "Authorization: Bearer {}": "Qm8xT2vLk9Rw",
    "postgres://bob:{}@db.example/work": "pw1",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----": "MIIEpAIBAAKCAQEA",
}
"""Forms that show what a value is."""
KEPT = (
    "exit code 1: tests/api/test_keys.py:12: KeyError: 'token'",
    "Invalid API key: expired; password is wrong; login: run `claude login`; Authorization: required",
    "max_tokens=4096, token_count: 512, api_key=os.environ['X'], secret = ${VAULT}, password: <secret>",
    "request req_011CQm8xT2vLk9Rw4Zp7Qm8xT2vLk in /root/work/v2/src/Test1/Foo2/Bar3/baz4/README.md",
    "commit 0a1b2c3d4e5f6a7b8c9d0a1b2c3d4e5f6a7b8c9d, session 7f9c24e8-3b12-4fef-91d3-0a1b2c3d4e5f",
    "task-12345678 of api-tests-2 on box-1.example.org at 2026-11-18T21:00:00Z by ada@example.org",
    "claude-opus-4-6-20260105 refused: 429 rate_limit_error, retry-after: 30",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_key_is_removed_wherever_it_stands(secret: str) -> None:
    around = ("{}", "error: bad key {}, sorry", '{{"message": "{}"}}', "a\n{}\nb", "key={}")

    assert [form for form in around if secret in without_secrets(form.format(secret))] == []


@pytest.mark.parametrize(("form", "secret"), NAMED.items())
def test_a_value_that_its_name_shows_to_be_a_secret_is_removed(form: str, secret: str) -> None:
    assert secret not in without_secrets(form.format(secret))


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_the_words_that_a_signal_was_read_from_are_clean() -> None:
    signal = signal_without_secrets(AuthFailed(detail=f"invalid key {SECRETS[0]}"))

    assert signal == AuthFailed(detail="invalid key <key>")


def test_an_answer_is_stored_without_the_keys_in_it() -> None:
    result = UnitResult(answer=f"I used {SECRETS[0]}", end_request=EndRequest(attempt_id="a1", reason=SECRETS[1]))

    assert storable_result(result) == UnitResult(
        answer="I used <key>", end_request=EndRequest(attempt_id="a1", reason="<key>")
    )


COMMANDS = (
    ("show", "docs/a"),
    ("show", "docs/b", "--json"),
    ("why", "docs/a", "--json"),
    ("units", "docs", "--json"),
    ("events", "--json"),
    ("results", "docs", "--json"),
    ("summary", "docs"),
    ("status", "--json"),
    ("list", "--json"),
)


def test_a_key_that_a_failing_agent_or_check_prints_is_stored_nowhere(workspace: Workspace) -> None:
    printed = (*(form.format(secret) for form, secret in NAMED.items()), *SECRETS)
    hidden = (*SECRETS, *NAMED.values())
    workspace.write("printed", "\n".join(printed))
    script = "cat printed; tail -1 printed >&2; test {id} = b"
    check = 'check = ["sh", "-c", "cat printed; exit 1"]\ncheck_rounds = 0\nmax_attempts = 1'
    plan = workspace.plan(script, "a", "b", head=check)

    out = workspace.run("run", plan, code=1).output + "".join(workspace.run(*command).output for command in COMMANDS)

    stored = b"".join(path.read_bytes() for path in files_outside_the_spool(workspace.home))
    found = {secret for secret in hidden if secret in out or secret.encode() in stored}
    assert (found, "docs/a is quarantined" in out, "docs/b is unverified" in out) == (set(), True, True)


def files_outside_the_spool(home: Path) -> list[Path]:
    """The database, its journal and the log. The spool has what was printed, as it was printed."""
    return [path for path in home.rglob("*") if path.is_file() and "spool" not in path.relative_to(home).parts]
