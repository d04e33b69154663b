"""`paceline run` with real processes: to the end, stopped, killed, and run again. Nothing lost, nothing twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Workspace, finish, lines_of, read_until
from tests.cli.terminal import on_terminal

from paceline.cli.commands.run import _print_interrupted
from paceline.daemon.home import open_home
from paceline.errors import StoreUnreachable
from paceline.store import Unit, UnitSpec

RECORDED = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done; echo {id} >> ends"


def test_a_plan_runs_to_its_end(workspace: Workspace) -> None:
    plan = workspace.plan("echo {id} >> ends", "a", "b", "c", "d", "e", "f")

    code, out, err = finish(workspace.start("run", plan))

    assert (code, err) == (0, "")
    assert "docs: 6 new units" in out
    assert "docs: 6 done" in out
    assert sorted(lines_of(workspace.folder / "ends")) == list("abcdef")
    assert oct((workspace.home).stat().st_mode)[-3:] == "700"


def test_paceline_works_inside_a_session(workspace: Workspace) -> None:
    plan = workspace.plan(f"{sys.executable} -m paceline status --json > status.json", "a")

    code, _, err = finish(workspace.start("run", plan))

    assert (code, err) == (0, "")
    assert json.loads((workspace.folder / "status.json").read_text())["units"]["running"] == 1


def test_running_a_finished_plan_again_does_nothing(workspace: Workspace) -> None:
    plan = workspace.plan("echo {id} >> ends", "a", "b")
    workspace.run("run", plan)

    again = workspace.run("run", plan)

    assert "0 new units, 2 already known" in again.stdout
    assert len(lines_of(workspace.folder / "ends")) == 2


def test_a_unit_that_fails_for_good_is_named_and_the_exit_code_is_1(workspace: Workspace) -> None:
    plan = workspace.plan("echo sorry; exit 3", "bad", head="max_attempts = 1")

    result = workspace.run("run", plan, code=1)

    assert "docs/bad is quarantined: exit code 3: sorry" in result.stdout
    assert "paceline retry docs" in result.stdout


def test_figures_come_as_json(workspace: Workspace) -> None:
    plan = workspace.plan("test {id} != bad", "good", "bad", head="max_attempts = 1")

    figures = workspace.run_json("run", plan, code=1)

    assert figures["campaign"] == "docs"
    assert (figures["units"]["done"], figures["units"]["quarantined"]) == (1, 1)
    assert [unit["id"] for unit in figures["left"]] == ["docs/bad"]


def test_the_json_of_a_run_has_every_unit_that_is_left(workspace: Workspace) -> None:
    plan = workspace.plan("true", *(f"u{number:02d}" for number in range(12)))
    workspace.run("add", plan)
    left = [f"docs/u{number:02d}" for number in range(12)]
    with open_home() as home:
        home.store.move_units(left, "held", "a person is needed", now=time.time())

    figures = workspace.run_json("run", plan, code=1)

    assert [unit["id"] for unit in figures["left"]] == left


def test_several_plans_run_together_and_share_one_exit_code(workspace: Workspace) -> None:
    good = workspace.plan("echo {id} >> ends", "a", "b", name="good")
    bad = workspace.plan("exit 3", "c", name="bad", head="max_attempts = 1")

    figures = workspace.run_json("run", good, bad, code=1)
    again = workspace.run("run", good, bad, code=1)

    assert [(each["campaign"], each["units"]["done"]) for each in figures["campaigns"]] == [("good", 2), ("bad", 0)]
    assert "good: 2 done" in again.stdout
    assert "bad: 1 quarantined" in again.stdout


def test_nothing_is_stored_if_one_of_several_plans_is_wrong(workspace: Workspace) -> None:
    good = workspace.plan("true", "a", name="good")
    wrong = workspace.write("wrong.toml", '[campaign]\nname = "wrong"\n')
    twice = workspace.write("twice.toml", good.read_text())

    workspace.run("run", good, wrong, code=2)
    assert "both the campaign 'good'" in workspace.run("run", good, twice, code=2).stderr

    assert workspace.run_json("list")["campaigns"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_its_sessions_running_and_goes_on(
    workspace: Workspace, number: signal.Signals
) -> None:
    plan = workspace.plan(RECORDED, "a", "b", "c", head="max_sessions = 2")
    first = workspace.start("run", plan)
    read_until(first, "started docs/b")

    first.send_signal(number)
    code, out, err = finish(first)

    assert (code, err) == (130, "")
    assert "2 sessions continue without the engine" in out
    assert f"To continue: paceline run {plan}" in out
    assert workspace.run_json("status")["engine"]["state"] == "stopped"

    (workspace.folder / "go").touch()
    code, out, _ = finish(workspace.start("run", plan))

    assert code == 0
    assert sorted(lines_of(workspace.folder / "starts")) == ["a", "b", "c"]
    assert sorted(lines_of(workspace.folder / "ends")) == ["a", "b", "c"]
    assert [unit["tries"] for unit in workspace.run_json("units", "docs")["units"]] == [1, 1, 1]


def test_a_run_under_nohup_does_not_end_with_its_terminal(workspace: Workspace) -> None:
    plan = workspace.plan(RECORDED, "a")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by what is started now
    try:
        engine = workspace.start("run", plan)
    finally:
        signal.signal(signal.SIGHUP, before)
    read_until(engine, "started docs/a")

    engine.send_signal(signal.SIGHUP)
    workspace.run("add", workspace.plan("true", "x", name="more"))
    read_until(engine, "done more/x")  # it goes on
    (workspace.folder / "go").touch()

    assert finish(engine)[0] == 0


def test_whoever_stops_reading_gets_no_traceback(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", *(f"u{number}" for number in range(3000))))
    command = f"{sys.executable} -m paceline units docs --json | head -n 1"

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("{\n", "")


def test_a_killed_run_goes_on_at_once_with_the_sessions_that_still_run(workspace: Workspace) -> None:
    plan = workspace.plan(RECORDED, "a", "b", "c", head="max_sessions = 2")
    first = workspace.start("run", plan)
    read_until(first, "started docs/b")

    first.kill()
    finish(first)
    second = workspace.start("run", plan)
    read_until(second, "engine leading")  # without waiting for the lease of the one that was killed
    (workspace.folder / "go").touch()
    code, _, _ = finish(second)

    assert code == 0
    assert sorted(lines_of(workspace.folder / "starts")) == ["a", "b", "c"]
    assert sorted(lines_of(workspace.folder / "ends")) == ["a", "b", "c"]
    assert [unit["attempts"] for unit in workspace.run_json("units", "docs")["units"]] == [0, 0, 0]


def test_a_second_engine_is_refused_with_75_and_stores_nothing(workspace: Workspace) -> None:
    first = workspace.start("run", workspace.plan(RECORDED, "a"))
    read_until(first, "started docs/a")
    other = workspace.plan("true", "x", name="other")

    refused = workspace.run("run", other, code=75)

    assert f"another engine (process {first.pid})" in refused.stderr
    assert f"paceline add {other}" in refused.stderr
    assert [campaign["name"] for campaign in workspace.run_json("list")["campaigns"]] == ["docs"]


def test_a_plan_added_from_outside_is_taken_up_by_the_engine_that_runs(workspace: Workspace) -> None:
    engine = workspace.start("run", workspace.plan(RECORDED, "a"))
    read_until(engine, "started docs/a")

    workspace.run("add", workspace.plan("echo {id} >> others", "x", name="other"))
    read_until(engine, "done other/x")
    (workspace.folder / "go").touch()

    assert finish(engine)[0] == 0
    assert lines_of(workspace.folder / "others") == ["x"]


def test_a_live_engine_obeys_pause_pool_and_cancel(workspace: Workspace) -> None:
    plan = workspace.plan(RECORDED, "a", "b", "c")
    engine = workspace.start("run", plan)
    # This may come before or after the first starts; running sessions are never ended for it.
    pool = workspace.run_json("pool", 1)
    assert pool["limit"] == 1
    read_until(engine, "started docs/a")
    workspace.run("pause", "docs")
    workspace.run("cancel", "docs")

    code, out, _ = finish(engine)

    assert code == 1
    assert "3 cancelled" in out
    assert lines_of(workspace.folder / "ends") == []


def test_a_paused_campaign_ends_the_run_and_says_how_to_go_on(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a")
    workspace.run("add", plan)
    workspace.run("pause", "docs")

    result = workspace.run("run", plan, code=1)

    assert "docs is paused: paceline resume docs" in result.stdout


def test_a_campaign_whose_units_fail_alike_ends_the_run_and_says_how_to_go_on(workspace: Workspace) -> None:
    plan = workspace.plan("echo 'no such model' >&2; exit 2", *(f"u{n}" for n in range(20)))
    reason = "docs paused itself: the first 5 units failed alike, the last with: exit code 2: no such model"

    result = workspace.run("run", plan, code=1)

    assert reason in result.stdout
    assert "paceline resume docs" in result.stdout
    assert reason in workspace.run("list").stdout
    assert "paused itself: the first 5 units" in workspace.run("status").stdout
    assert "paused itself: the first 5 units" in workspace.run("why", "docs/u19").stdout
    assert {unit["attempts"] for unit in workspace.run_json("units", "docs")["units"]} == {0, 1}


def test_a_campaign_that_failed_whole_is_run_again_by_the_commands_that_are_named(workspace: Workspace) -> None:
    plan = workspace.plan("test -e fixed", "a", "b", "c", head="max_attempts = 1\n")

    result = workspace.run("run", plan, code=1)
    (workspace.folder / "fixed").touch()

    assert "paceline retry docs, then run again." in result.stdout
    assert "Fix the cause, then paceline resume docs, then run again." in result.stdout
    assert "docs is paused, so nothing of it starts" in workspace.run("retry", "docs").stdout
    workspace.run("resume", "docs")
    assert "docs: 3 done" in workspace.run("run", plan).stdout


def test_a_check_that_never_ends_is_a_failed_check_of_its_unit(workspace: Workspace) -> None:
    check = ["sh", "-c", "echo testing; test $PACELINE_UNIT = docs/a || exec sleep 600"]
    plan = workspace.plan("true", "a", "b", head=f'check = {check}\ncheck_timeout = "1s"\ncheck_rounds = 0\n')

    result = workspace.run("run", plan, code=1)

    assert "the check failed once with exit code 124: it did not end within 1 s" in result.stdout
    assert "docs: 1 done, 1 unverified" in result.stdout


def test_a_campaign_whose_check_cannot_start_says_how_to_go_on(workspace: Workspace) -> None:
    plan = workspace.plan("true", "a", "b", "c", head='check = ["./no-check"]\n')

    result = workspace.run("run", plan, code=1)

    assert "docs paused itself: the check cannot do its work: " in result.stdout
    assert "Fix the cause, then paceline resume docs, then run again." in result.stdout


def test_an_agent_finds_its_unit_in_its_environment(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("echo $PACELINE_UNIT $PACELINE_ATTEMPT > seen", "a"))

    unit, attempt = lines_of(workspace.folder / "seen")[0].split()

    assert unit == "docs/a"
    assert attempt.endswith("-1")
    assert str(os.getpid()) in attempt


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[campaign]\nname = "x"\nagent = "claude"\n[[unit]]\nid = "a"\nprompt = "p"', "npm install -g"),
        ('[campaign]\nname = "x"\ncommand = ["no-such-program"]\n[[unit]]\nid = "a"', "not on your PATH"),
        ('[campaign]\nname = "x"\ncommand = ["true"]\ncheck = ["no-such-check"]\n[[unit]]\nid = "a"', "check needs"),
        ('[campaign]\nname = "x"\ncommand = ["./tool"]\n[[unit]]\nid = "a"', "tool is not an executable program"),
        ('[campaign]\nname = "x"\nacounts = []\ncommand = ["true"]\n[[unit]]\nid = "a"', 'did you mean "accounts"?'),
        ('[campaign]\nname = "x"\naccounts = ["max"]\ncommand = ["true"]\n[[unit]]\nid = "a"', "[accounts.max]"),
        ('[campaign]\nname = "x"\ncommand = ["true"]\n[[unit]]\nid = "a"\n[[unit]]\nid = "a"', "a"),
    ],
)
def test_what_cannot_run_is_refused_whole(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    refused = workspace.run("run", workspace.write("x.toml", text), code=2)

    assert said in refused.stderr
    assert "x.toml" in refused.stderr
    assert workspace.run_json("list")["campaigns"] == []


def test_an_account_without_its_folder_is_refused_with_the_way_to_log_in(workspace: Workspace) -> None:
    workspace.write(
        "paceline.toml",
        '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\n'
        'env = { CLAUDE_CONFIG_DIR = "~/.claude-max-1" }',
    )
    plan = workspace.plan("true", "a", head='model = "opus-4-6"\naccounts = ["max-1"]')

    refused = workspace.run("run", plan, code=2)

    assert "CLAUDE_CONFIG_DIR names" in refused.stderr
    assert "log in once: mkdir -p" in refused.stderr


def test_a_campaign_whose_account_is_gone_is_named(workspace: Workspace) -> None:
    settings = workspace.write("paceline.toml", '[accounts.mine]\nprovider = "acme"\nkind = "subscription"')
    workspace.run("add", workspace.plan("true", "a", head='accounts = ["mine"]'))
    settings.unlink()

    refused = workspace.run("run", workspace.plan("true", "x", name="other"), code=2)

    assert "docs runs on the account 'mine', which no longer exists" in refused.stderr


def test_a_broken_settings_file_is_wrong_use(workspace: Workspace) -> None:
    workspace.write("paceline.toml", "[pool]\nsesions = 4")

    refused = workspace.run("run", workspace.plan("true", "a"), code=2)

    assert 'did you mean "sessions"?' in refused.stderr


def test_the_engine_writes_nothing_but_what_it_owns(workspace: Workspace) -> None:
    workspace.run("run", workspace.plan("true", "a"))

    names = {path.name for path in workspace.home.iterdir()}

    assert names <= {"paceline.db", "paceline.db-wal", "paceline.db-shm", "spool", "engine.lock", "paceline.log"}
    assert json.loads((workspace.home / "engine.lock").read_text())["pid"] == os.getpid()


def test_the_live_screen_shows_what_runs_and_what_waits_and_ctrl_c_stops(workspace: Workspace) -> None:
    plan = workspace.plan("while [ ! -e go ]; do sleep 0.05; done", "a", "b", head="max_sessions = 1")

    with on_terminal(workspace, "run", str(plan)) as terminal:
        shown = terminal.wait_for(lambda text: "waiting\n" in text)
        terminal.type(b"\x03")
        code = terminal.wait_end()

    assert "docs/a for" in shown
    assert "docs: campaign:docs at its limit (1/1)" in shown
    assert "0/2" in shown
    assert code == 130
    assert "1 session continues without the engine: docs/a" in terminal.text
    (workspace.folder / "go").touch()
    workspace.run("run", plan)


def test_a_parked_unit_is_shown_with_its_time(workspace: Workspace) -> None:
    plan = workspace.plan('echo "You\'ve hit your usage limit. Try again in 2 hours." >&2; exit 1', "a")

    with on_terminal(workspace, "run", str(plan)) as terminal:
        shown = terminal.wait_for(lambda text: "parked\n" in text)

    assert "docs: 1 until" in shown
    assert "the quota window is spent" in shown


def test_a_unit_that_backs_off_is_not_shown_as_parked(workspace: Workspace) -> None:
    plan = workspace.plan("exit 75", "a")

    with on_terminal(workspace, "run", str(plan)) as terminal:
        shown = terminal.wait_for(lambda text: "asked to be tried later (exit code 75)" in text)

    assert "parked\n" not in shown


def test_a_refusal_leaves_a_line_in_the_log(workspace: Workspace) -> None:
    script = "[ -e once ] || { touch once; echo '429 Too Many Requests, retry-after: 1'; exit 1; }"

    workspace.run("run", workspace.plan(script, "a"))

    log = (workspace.home / "paceline.log").read_text()
    assert "INFO campaign:docs: paused for 1 s" in log


def test_an_interrupted_run_whose_store_is_gone_does_not_say_that_nothing_runs(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnreachable("the database does not answer")

    with open_home() as home:
        monkeypatch.setattr(home.store, "running_units", fail)
        _print_interrupted(home, [Path("docs.toml")], as_json=False)
        said = capsys.readouterr()
        _print_interrupted(home, [Path("docs.toml")], as_json=True)

    assert said.out == "Stopped.\nTo continue: paceline run docs.toml\n"
    assert said.err == "Warning: the database does not answer; sessions that run continue without the engine\n"
    assert json.loads(capsys.readouterr().out) == {"interrupted": True, "running": None}


def test_an_interrupted_run_on_a_full_disk_does_not_say_that_sessions_continue(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its units may have been claimed for sessions that never began, which could not be stored."""
    unit = Unit(id="docs/a", campaign="docs", spec=UnitSpec(id="a"), position=0, state="running")
    with open_home() as home:
        monkeypatch.setattr(home.store, "running_units", lambda: [unit])
        monkeypatch.setattr(type(home), "trouble", "the disk is full")
        _print_interrupted(home, [Path("docs.toml")], as_json=False)

    said = "Stopped. These units were running when the store failed (the disk is full): docs/a"
    assert capsys.readouterr().out == f"{said}\nTo continue: paceline run docs.toml\n"
