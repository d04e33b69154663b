"""The limits that the agent CLIs meet in recordings. Data only: `record_agents.py` runs it.

`tests/agents/agent_cli.py` has the CLIs. `{url}` in environment and files is the fake provider's address.
`outcome` is what Paceline should detect in the run. None: the run is kept but not judged.
"""

import msgspec

from paceline.testing.provider import Scenario, Step, ToolCall, Window

CAP_SECONDS = 40.0  # longer than the retries of most CLIs take with the short retry hints below
FIRST_PROMPT = "hi"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a CLI. `argv` replaces the agent's, `env` and `files` extend and override the agent's."""

    agent: str
    name: str
    outcome: str | None
    scenario: Scenario = Scenario()
    argv: tuple[str, ...] | None = None
    then: tuple[str, ...] | None = None
    """Arguments of a second run in the same home. It is the one that is recorded; the first only prepares it."""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    terminate: bool = False
    """Send SIGTERM while the answer streams."""
    cap_seconds: float = CAP_SECONDS


OAUTH = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-fake"}
SLOW = Scenario(tokens_per_second=0.5)
FULL_WINDOW = Window(name="5h", requests=10)


def _always(error: str, **fields: float) -> Scenario:
    """Return a scenario in which every request fails. Retry hints are short, so that recording is fast."""
    return Scenario(script=(Step(error=error, times=None, retry_after=fields.get("retry_after", 1.0)),))


def _once(error: str, times: int = 1) -> Scenario:
    return Scenario(script=(Step(error=error, times=times, retry_after=1.0),))


def _case(name: str, outcome: str | None, scenario: Scenario = Scenario(), **more: object) -> Case:  # noqa: B008
    """Return a case named `agent/name`, for the table below."""
    agent, _, case = name.partition("/")
    return msgspec.convert({"agent": agent, "name": case, "outcome": outcome, "scenario": scenario} | more, Case)


def _asks_for(tool: str, times: int = 1, **arguments: object) -> Scenario:
    """Return a scenario whose first answer calls a tool, which the CLI denies without permissions."""
    return Scenario(script=(Step(error="ok", tool=ToolCall(name=tool, arguments=arguments), times=times),))


BUSY = (Step(error="429_concurrency", times=None, retry_after=1.0),)
NEWEST = ("claude", "qwen")
"""The CLIs whose newest version needs another Node.js; their cases are recorded with both versions."""
OPENCODE_FLAGS = ("--format", "json", "--print-logs", "--log-level", "ERROR")
NOBODY_LISTENS = {
    ".config/opencode/opencode.json": """\
{"autoupdate": false, "share": "disabled", "provider": {"fake": {"npm": "@ai-sdk/openai-compatible", "name": "Fake",
 "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "sk-fake-0000"},
 "models": {"gpt-5": {"name": "gpt-5", "limit": {"context": 100000, "output": 8000}}}}}}
"""
}
NO_OPENCLAW_PROVIDER = {
    ".openclaw/openclaw.json": """\
{"agents": {"defaults": {"model": {"primary": "fake/m1"}}}, "models": {"mode": "merge", "providers": {"fake": {
 "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-fake-0000", "api": "openai-completions",
 "models": [{"id": "m1", "name": "m1", "reasoning": false, "input": ["text"], "contextWindow": 196608,
 "maxTokens": 8192, "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}}]}}}}
"""
}
UNTRUSTED = {"work/.claude/settings.json": '{"permissions": {"allow": ["Write", "Edit", "Bash(ls:*)"]}}'}
NEW_FILE = {"file_path": "/home/user/work/new.txt", "content": "x"}
_CASES = (
    _case("claude/success", "success"),
    _case("claude/success.text", "success", argv=("-p", "hi")),
    _case("claude/success.json", "success", argv=("-p", "hi", "--output-format", "json")),
    _case("claude/success_window.oauth", "success", Scenario(windows=(FULL_WINDOW,)), env=OAUTH),
    _case("claude/success_warning.oauth", "success", Scenario(windows=(Window(requests=1),)), env=OAUTH),
    _case("claude/429_retry_after", "rate_limit", _always("429_retry_after")),
    _case("claude/429_retry_after.text", "rate_limit", _always("429_retry_after"), argv=("-p", "hi")),
    _case("claude/429_retry_after.oauth", "rate_limit", _always("429_retry_after"), env=OAUTH),
    _case("claude/429_then_ok", "success", _once("429_retry_after", 2)),
    _case("claude/429_tokens", "rate_limit", _always("429_tokens")),
    _case("claude/429_unified.oauth", "quota_window", _always("429_unified"), env=OAUTH),
    _case("claude/429_unified.oauth.text", "quota_window", _always("429_unified"), env=OAUTH, argv=("-p", "hi")),
    _case("claude/429_unified_7d.oauth", "quota_window", _always("429_unified_7d"), env=OAUTH),
    _case("claude/429_unified_7d_opus.oauth", "quota_window", _always("429_unified_7d_opus"), env=OAUTH),
    _case("claude/529", "overloaded", _always("529")),
    _case("claude/529_then_ok", "success", _once("529", 2)),
    _case("claude/500", "overloaded", _always("500")),
    _case("claude/401", "auth", _always("401")),
    _case("claude/403", "auth", _always("403")),
    _case("claude/400_credit", "billing", _always("400_credit")),
    _case("claude/midstream_overloaded", "success", _once("midstream_overloaded")),
    _case("claude/midstream_rst", "success", _once("midstream_rst")),
    _case(
        "claude/resume", "success", then=("-p", "again", "--continue", "--output-format", "stream-json", "--verbose")
    ),
    _case("claude/denied", "denied", _asks_for("Write", **NEW_FILE)),
    _case("claude/denied.untrusted", "denied", _asks_for("Write", **NEW_FILE), files=UNTRUSTED),
    _case("claude/429_concurrency.oauth", None, Scenario(windows=(FULL_WINDOW,), script=BUSY), env=OAUTH),
    _case("claude/slow.sigterm", "interrupted", SLOW, terminate=True),
    _case("codex/success", "success"),
    _case("codex/success_windows", "success", Scenario(windows=(FULL_WINDOW,))),
    _case("codex/429_retry_after", "rate_limit", _always("429_retry_after")),
    _case("codex/503_then_ok", "success", _once("503")),
    _case("codex/429_usage_limit", "quota_window", _always("429_usage_limit")),
    _case("codex/429_insufficient_quota", "billing", _always("429_insufficient_quota")),
    _case("codex/429_usage_not_included", None, _always("429_usage_not_included")),
    _case("codex/503", "overloaded", _always("503")),
    _case("codex/500", "overloaded", _always("500")),
    _case("codex/401", "auth", _always("401")),
    _case("codex/midstream_rate_limit", "rate_limit", _always("midstream_rate_limit")),
    _case("codex/midstream_quota", "billing", _always("midstream_quota")),
    _case("codex/midstream_rst", "failed", _always("midstream_rst")),
    _case("codex/resume", "success", then=("exec", "resume", "--last", "--json", "--skip-git-repo-check", "again")),
    _case("codex/denied", "denied", _asks_for("exec_command", cmd="touch new.txt")),
    _case("codex/slow.sigterm", "interrupted", SLOW, terminate=True),
    _case("gemini/success", "success"),
    _case("gemini/success.text", "success", argv=("-m", "gemini-2.5-pro", "-p", "hi", "--skip-trust")),
    _case("gemini/429_retryinfo", "rate_limit", _always("429_retryinfo")),
    _case("gemini/429_perday", "quota_window", _always("429_perday")),
    _case("gemini/429_capacity", "quota_window", _always("429_capacity")),
    _case("gemini/503", "overloaded", _always("503")),
    _case("gemini/400_api_key", "auth", _always("400_api_key")),
    _case("gemini/midstream_rst", "failed", _always("midstream_rst")),
    _case(
        "gemini/resume",
        "success",
        then=("-m", "gemini-2.5-pro", "--resume", "latest", "-p", "again", "-o", "stream-json", "--skip-trust"),
    ),
    _case("gemini/denied", "denied", _asks_for("write_file", **NEW_FILE)),
    _case("gemini/slow.sigterm", "interrupted", SLOW, terminate=True),
    _case("opencode/success", "success"),
    _case("opencode/429_retry_after", "rate_limit", _always("429_retry_after"), cap_seconds=60.0),
    _case("opencode/429_usage_limit", "quota_window", _always("429_usage_limit"), cap_seconds=120.0),
    _case("opencode/429_insufficient_quota", "billing", _always("429_insufficient_quota"), cap_seconds=120.0),
    _case("opencode/503", "overloaded", _always("503"), cap_seconds=120.0),
    _case("opencode/401", "auth", _always("401")),
    _case("opencode/unreachable", "unreachable", files=NOBODY_LISTENS, cap_seconds=240.0),
    _case(
        "opencode/resume",
        "success",
        then=("run", "--continue", *OPENCODE_FLAGS, "--model", "fake/gpt-5", "again"),
    ),
    _case(
        "opencode/denied",
        "denied",
        _asks_for("bash", times=2, command="touch new.txt", description="Makes a file"),
        env={"OPENCODE_PERMISSION": '{"bash":"deny"}'},
    ),
    _case("opencode/slow.sigterm", "interrupted", SLOW, terminate=True),
    _case("qwen/success", "success"),
    _case("qwen/success.text", "success", argv=("-p", "hi", "--auth-type", "openai")),
    _case("qwen/429_retry_after", "rate_limit", _always("429_retry_after"), cap_seconds=120.0),
    _case("qwen/429_then_ok", "success", _once("429_retry_after", 2)),
    _case("qwen/503", "overloaded", _always("503"), cap_seconds=120.0),
    _case("qwen/401", "auth", _always("401")),
    _case("qwen/resume", "success", then=("--continue", "-p", "again", "-o", "stream-json", "--auth-type", "openai")),
    _case("qwen/denied", "denied", _asks_for("write_file", **NEW_FILE)),
    _case("qwen/slow.sigterm", "interrupted", SLOW, terminate=True),
    _case("openclaw/success", "success"),
    _case("openclaw/success.text", "success", argv=("agent", "exec", "hi")),
    _case("openclaw/429_retry_after", "rate_limit", _always("429_retry_after"), cap_seconds=120.0),
    _case("openclaw/429_usage_limit", "quota_window", _always("429_usage_limit"), cap_seconds=120.0),
    _case("openclaw/429_insufficient_quota", "billing", _always("429_insufficient_quota"), cap_seconds=120.0),
    _case("openclaw/429_then_ok", "success", _once("429_retry_after"), cap_seconds=120.0),
    _case("openclaw/503", "overloaded", _always("503"), cap_seconds=120.0),
    _case("openclaw/500", "overloaded", _always("500"), cap_seconds=120.0),
    _case("openclaw/401", "auth", _always("401"), cap_seconds=120.0),
    _case("openclaw/midstream_rst", "failed", _always("midstream_rst"), cap_seconds=120.0),
    _case("openclaw/unreachable", "unreachable", files=NO_OPENCLAW_PROVIDER, cap_seconds=120.0),
    _case(
        "openclaw/timeout", "failed", SLOW, argv=("agent", "exec", "--json", "--timeout", "12", "hi"), cap_seconds=120.0
    ),
    _case("openclaw/no_config", "failed", files={".openclaw/openclaw.json": "{}"}, cap_seconds=120.0),
    _case("openclaw/slow.sigterm", "interrupted", SLOW, terminate=True, cap_seconds=120.0),
)


def _with_newest(case: Case) -> tuple[Case, ...]:
    if case.agent not in NEWEST:
        return (case,)
    return case, msgspec.structs.replace(case, agent=f"{case.agent}-newest")


CASES = tuple(each for case in _CASES for each in _with_newest(case))
