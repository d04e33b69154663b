"""What a worker finds on its host: logins, programs and what differs between machines, and never a secret."""

from pathlib import Path

import pytest

from paceline.hosts.messages import HostCli, Login, ProbedAccount
from paceline.hosts.worker.worker import FactsReader, login_problem


def program(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path / "user"), "LANG": "C", "SECRET": "s3"}


def test_agent_clis_are_found_with_their_versions(tmp_path: Path, environ: dict[str, str]) -> None:
    path = program(tmp_path / "bin", "claude", "echo '2.1.325 (Claude Code)'; echo more")
    program(tmp_path / "bin", "my-agent", "exit 1")

    facts = FactsReader(tmp_path, environ, labels=("gpu",)).read(
        (), ("claude", "codex", "mine", "command"), {"mine": "my-agent"}
    )

    assert facts.clis == (
        HostCli(agent="claude", version="2.1.325 (Claude Code)", path=str(path)),
        HostCli(agent="codex"),
        HostCli(agent="mine", version="unknown", path=str(tmp_path / "bin" / "my-agent")),
        HostCli(agent="command"),
    )
    assert facts.labels == ("gpu",)


def test_a_version_is_read_again_only_when_the_program_has_changed(tmp_path: Path, environ: dict[str, str]) -> None:
    script = f"echo x >> {tmp_path}/runs; echo 1.0"
    program(tmp_path / "bin", "claude", script)
    reader = FactsReader(tmp_path, environ)
    reader.read((), ("claude",))
    reader.read((), ("claude",))
    once = (tmp_path / "runs").read_text()
    program(tmp_path / "bin", "claude", script.replace("1.0", "1.1.0"))
    facts = reader.read((), ("claude",))

    assert once == "x\n"
    assert facts.clis[0].version == "1.1.0"


def test_variables_that_may_be_secret_are_not_reported(tmp_path: Path, environ: dict[str, str]) -> None:
    facts = FactsReader(tmp_path, environ).read((), ())

    assert facts.variables["LANG"] == "C"
    assert "s3" not in repr(facts)


def test_the_logins_of_a_host_are_those_of_its_own_home_folder(tmp_path: Path, environ: dict[str, str]) -> None:
    account = ProbedAccount(account="max-1", provider="anthropic", env={"CLAUDE_CONFIG_DIR": "~/.claude-max"})
    reader = FactsReader(tmp_path, environ)
    missing = reader.read((account,), ()).logins
    (tmp_path / "user" / ".claude-max").mkdir(parents=True)
    empty = reader.read((account,), ()).logins
    (tmp_path / "user" / ".claude-max" / ".credentials.json").write_text("{}")

    assert reader.read((account,), ()).logins == (Login(account="max-1"),)
    assert missing[0].problem is not None
    assert f"{tmp_path}/user/.claude-max, which does not exist" in missing[0].problem
    assert empty[0].problem is not None
    assert "there is no .credentials.json" in empty[0].problem


@pytest.mark.parametrize(
    ("account", "variables", "words"),
    [
        (ProbedAccount(account="k", provider="anthropic", key_env="KEY"), {}, "KEY, which is not set"),
        (ProbedAccount(account="k", provider="anthropic", key_env="KEY"), {"KEY": "x"}, None),
        (ProbedAccount(account="k", provider="anthropic", key_env="KEY", needs_login=False), {}, None),
        (ProbedAccount(account="d", provider="anthropic", agents=("claude",)), {}, "not logged in: there is no"),
        (
            ProbedAccount(account="d", provider="anthropic", agents=("claude",)),
            {"CLAUDE_CODE_OAUTH_TOKEN": "x"},
            None,
        ),
        (ProbedAccount(account="d", provider="openai", agents=("codex",)), {}, "log in once: codex login"),
        (ProbedAccount(account="d", provider="somebody", agents=("somebody",)), {}, None),
    ],
)
def test_an_account_is_usable_where_its_key_or_its_login_is(
    account: ProbedAccount, variables: dict[str, str], words: str | None
) -> None:
    problem = login_problem(account, {"HOME": "/nonexistent"} | variables)

    assert problem is None if words is None else words in (problem or "")
