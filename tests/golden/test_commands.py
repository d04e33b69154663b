"""Commands without an engine: their JSON, their text and their exit codes are as recorded."""

import json

from tests.golden.command import Script
from tests.golden.plans import plan
from tests.golden.recording import Recordings

DOCS = {"a": "echo a", "b": "echo b", "c": "echo c"}


def compare(script: Script, recordings: Recordings, name: str) -> None:
    recordings.compare(f"commands/{name}", script.values)
    recordings.compare_text(f"commands/{name}", "\n".join(script.texts))


def test_an_empty_home(script: Script, recordings: Recordings) -> None:
    for command in ("list", "status", "limits", "events"):
        script.look(command)
    script.code("units", "docs")
    script.code("why", "docs/a")
    script.code("logs", "docs/a")
    script.code("cancel", "docs")
    script.code("retry", "docs")
    script.code("delete", "docs", "--yes")
    script.value("pause", "--all")

    compare(script, recordings, "empty_home")


def test_adding_a_plan(script: Script, recordings: Recordings) -> None:
    script.home.write("docs.toml", plan("docs", DOCS, "priority = 2\nmax_sessions = 3"))
    script.value("add", "docs.toml")
    script.text("add", "docs.toml")
    script.home.write("docs.toml", plan("docs", DOCS | {"b": "echo changed", "d": "echo d"}, "priority = 2"))
    script.value("add", "docs.toml")
    script.text("add", "docs.toml")
    script.value("add", "docs.toml", "--update")
    script.text("add", "docs.toml", "--update")
    for argv in (
        ["list"],
        ["status"],
        ["units", "docs"],
        ["units", "docs", "--limit", "2"],
        ["why", "docs/a"],
        ["why", "b"],
    ):
        script.look(*argv)
    script.value("units", "docs", "--state", "waiting")
    script.value("units", "docs", "--state", "parked")
    script.look("limits")
    script.look("events")
    script.code("logs", "docs/a")

    compare(script, recordings, "adding")


def test_steering_campaigns(script: Script, recordings: Recordings) -> None:
    for name in ("docs", "tests"):
        script.home.write(f"{name}.toml", plan(name, DOCS))
        script.home.give("add", f"{name}.toml")
    script.value("pause", "docs")
    script.text("pause", "docs")
    script.look("why", "docs/a")
    script.value("resume", "docs")
    script.text("resume", "docs")
    script.value("pause", "--all")
    script.value("resume", "--all")
    script.value("cancel", "docs")
    script.look("list")
    script.look("units", "docs")
    script.look("why", "docs/a")
    script.look("status")
    script.value("retry", "docs")
    script.text("retry", "docs")
    script.code("delete", "docs")
    script.value("delete", "docs", "--yes")
    script.text("delete", "tests", "--yes")
    script.value("list")
    script.look("events", "--after", "0")

    compare(script, recordings, "steering_campaigns")


def test_other_machines(script: Script, recordings: Recordings) -> None:
    script.home.write("paceline.toml", '[hosts.box9]\nssh = "user@box9"\nmax_sessions = 8\n')
    script.look("hosts")
    script.value("hosts", "add", "box1", "--command", "true", "--max-sessions", "4", "--label", "gpu")
    script.text("hosts", "add", "box2", "--command", "true", "--connect", "https://leader.example:7433")
    script.code("hosts", "add", "box1")
    script.code("hosts", "add", "box9")
    script.code("hosts", "add", "box 1")
    script.code("hosts", "remove", "box3")
    script.code("hosts", "token", "box3")
    script.look("hosts")
    script.value("hosts", "remove", "box1")
    script.text("hosts", "remove", "box2")
    script.look("events", "--after", "0")

    compare(script, recordings, "other_machines")


def test_steering_capacity(script: Script, recordings: Recordings) -> None:
    for argv in (
        ["pool", "2"],
        ["pool", "none"],
        ["limit", "umans", "5"],
        ["limit", "anthropic/max-1", "7"],
        ["limit", "openai/*/gpt-*", "2"],
        ["limit", "runs", "none"],
        ["cooldown", "umans", "1.5s"],
        ["cooldown", "openai", "auto"],
        ["restore", "umans"],
    ):
        script.value(*argv)
    script.look("limits")
    script.value("limit", "umans", "default")
    script.text("limit", "umans", "default")
    script.text("pool", "3")
    script.text("limit", "umans", "none")
    script.text("cooldown", "umans", "0")
    script.text("restore", "umans")
    script.look("limits")
    script.value("status")
    script.look("events", "--after", "0")

    compare(script, recordings, "steering_capacity")


def test_wrong_use(script: Script, recordings: Recordings) -> None:
    script.home.write("docs.toml", plan("docs", DOCS))
    script.home.give("add", "docs.toml")
    for name, text in {
        "syntax.toml": "[campaign\n",
        "unnamed.toml": '[campaign]\n[[unit]]\nid = "a"\nprompt = "x"\n',
        "unknown.toml": plan("docs", DOCS, 'colour = "red"'),
        "twice.toml": plan("docs", DOCS) + '[[unit]]\nid = "a"\nprompt = "again"\n',
        "agent.toml": '[campaign]\nname = "x"\nagent = "clode"\n[[unit]]\nid = "a"\nprompt = "x"\n',
        "empty.toml": '[campaign]\nname = "x"\ncommand = ["true"]\n',
    }.items():
        script.home.write(name, text)
        script.code("add", name)
    for argv in (
        ["add", "missing.toml"],
        ["run", "missing.toml"],
        ["limit", "umans", "0"],
        ["limit", "umans", "-1"],
        ["limit", "umans", "1.5"],
        ["limit", "umans", "many"],
        ["limit", "a//b", "1"],
        ["pool", "0"],
        ["cooldown", "umans", "-1s"],
        ["cooldown", "umans", "soon"],
        ["pause"],
        ["pause", "nobody"],
        ["units", "nobody"],
        ["units", "docs", "--state", "asleep"],
        ["why", "docs/nobody"],
        ["logs", "docs/nobody"],
        ["preview", "missing.toml"],
        ["forecast", "missing.toml"],
        ["detect", "missing.txt"],
        ["exec", "--", "no-such-program-here"],
        ["nonsense"],
        ["list", "--nonsense"],
    ):
        script.code(*argv)
    script.home.write("paceline.toml", "[pool]\nsessions = 0\n[limts]\n")
    script.code("list")
    script.home.environ["PACELINE_POOLS"] = "3"
    script.code("list")

    compare(script, recordings, "wrong_use")


def test_variables_override_the_file(script: Script, recordings: Recordings) -> None:
    script.home.environ |= {"PACELINE_POOL": "8", "PACELINE_LIMITS": "umans=2,anthropic/*/sonnet-*=9"}
    script.value("limits")
    script.value("status")

    recordings.compare("commands/variables", script.values)


def test_preview_and_forecast(script: Script, recordings: Recordings) -> None:
    script.home.write("docs.toml", plan("docs", DOCS, "max_sessions = 2"))
    script.look("preview", "docs.toml")
    script.look("forecast", "docs.toml")
    script.home.give("pool", "2")
    script.value("preview", "docs.toml")
    script.home.give("add", "docs.toml")
    script.home.give("pause", "docs")
    script.value("preview", "docs.toml")
    script.value("list")

    compare(script, recordings, "preview_and_forecast")


MESSAGES = {
    "window": ("You've hit your session limit · resets 3pm (Europe/Paris)", "claude-code"),
    "window_unix": ("Claude AI usage limit reached|1794758400", "claude-code"),
    "weekly": ("You've hit your weekly limit · resets Nov 20, 1:40am (UTC)", "claude-code"),
    "rate": ("Rate limit reached for gpt-5 on requests per min (RPM). Please try again in 20s.", "openai-api"),
    "platform": ("Platform limit reached limit 5 in use 5", "umans"),
    "billing": ("Credit balance is too low", "claude-code"),
    "auth": ("Error: 401 Unauthorized: invalid api key", "generic"),
    "overloaded": ("API Error: 529 Overloaded", "claude-code"),
    "nothing": ("All 12 tests passed.", "codex"),
}


def test_detect(script: Script, recordings: Recordings) -> None:
    seen = ("--seen-at", "1794700000", "--tz", "UTC")
    for text, provider in MESSAGES.values():
        script.value("detect", "-", "--provider", provider, *seen, stdin=text, is_exact=True)
        script.text("detect", "-", "--provider", provider, *seen, stdin=text)
    body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}})
    script.home.write("body.json", body)
    argv = ("detect", "body.json", "--provider", "anthropic-api", "--status", "429", "-H", "retry-after: 30", *seen)
    script.value(*argv, is_exact=True)
    script.text(*argv)
    script.home.write("run.txt", "working\nClaude AI usage limit reached|1794758400\n")
    script.look("detect", "run.txt", "--stream", "--provider", "claude-code", "--exit-code", "1", *seen)

    compare(script, recordings, "detect")


def test_report(script: Script, recordings: Recordings) -> None:
    said = "Key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 of anna@example.org was refused by 10.1.2.3"
    seen = ("--seen-at", "1794700000", "--tz", "UTC")
    script.value("report", "-", "-o", "sample.json", *seen, stdin=said)
    script.code("report", "-", "-o", "sample.json", *seen, stdin=said)
    script.text("report", "-", "-o", "sample.json", "--force", *seen, stdin=said)
    sample = json.loads((script.home.folder / "sample.json").read_text())
    recordings.compare("commands/report_sample", {key: each for key, each in sample.items() if key != "paceline"})

    compare(script, recordings, "report")


def test_exec_exits_with_the_code_of_its_command(script: Script, recordings: Recordings) -> None:
    script.code("exec", "--scope", "umans", "--", "sh", "-c", "echo inside; echo aside >&2; exit 3")
    script.code("exec", "--", "true")
    script.code("exec", "--scope", "a//b", "--", "true")
    script.code("exec", "--agent", "clode", "--", "true")

    compare(script, recordings, "exec")


def test_doctor_finds_what_is_wrong_with_an_account(script: Script, recordings: Recordings) -> None:
    """Only what does not depend on the machine."""
    answer = script.home.give("doctor", "--json")
    ours = ("python", "sqlite", "time zone", "settings", "home", "max-1", "work-key")
    findings = [finding for finding in answer.json()["findings"] if finding["what"] in ours]
    marked = [
        {key: "<text>" if key in ("detail", "mend") and each else each for key, each in finding.items()}
        for finding in findings
    ]

    recordings.compare("commands/doctor", {"exit": answer.exit, "ok": answer.json()["ok"], "findings": marked})
