"""OpenAI Codex: the CLI in its terminal and its JSONL, and the headers of its backend.

Here: its sentence, headers, events, rollout files, the items of its work, and the transcript that it prints to stderr.
"""

import re
from collections.abc import Sequence

from paceline.agents import dialect
from paceline.core.signals import Budget, Reach
from paceline.core.values.session_output import Tokens
from paceline.detect.fields import Headers
from paceline.detect.json_objects import Event, count_at, items_of, member, sum_at, text_at
from paceline.detect.provider import (
    LimitReading,
    Provider,
    Rule,
    any_of,
    error_reading,
    rule,
)
from paceline.detect.times import Reset, epoch_seconds, to_number

_SILENT = frozenset({"reasoning", "todo_list"})
_HALVES = frozenset({"command_execution", "mcp_tool_call"})
"""Items that are shown as a call when they start, and as a result when they complete."""


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    kind, item = event.get("type"), event.get("item")
    what = text_at(item, "type")
    if what is None or what in _SILENT or kind not in ("item.started", "item.completed"):
        return ()
    if kind == "item.started":
        return [_call(item, what)] if what in _HALVES else ()
    match what:
        case "agent_message":
            return dialect.said(text_at(item, "text"))
        case "error":
            message = text_at(item, "message")
            return [dialect.notice(message, is_error=True)] if message else ()
        case "command_execution" | "mcp_tool_call":
            return _result(item)
        case _:
            return [_call(item, what), *(_result(item) if member(item, "status") in _FAILED else ())]


_FAILED = ("failed", "declined")


def _call(item: object, what: str) -> dialect.TranscriptEntry:
    match what:
        case "command_execution":
            return dialect.tool_call("shell", text_at(item, "command"))
        case "mcp_tool_call":
            name = ".".join(filter(None, (text_at(item, "server"), text_at(item, "tool"))))
            return dialect.tool_call(name, member(item, "arguments"))
        case "file_change":
            changes = member(item, "changes")
            paths = [text_at(change, "path") for change in changes] if isinstance(changes, list) else []
            return dialect.tool_call("apply_patch", ", ".join(path for path in paths if path))
        case _:
            return dialect.tool_call(
                what, {name: value for name, value in items_of(item) if name not in ("id", "type")}
            )


def _result(item: object) -> list[dialect.TranscriptEntry]:
    output = text_at(item, "aggregated_output") or text_at(item, "error", "message")
    output = output or dialect.text_of_content(member(item, "result", "content"))
    exit_code = member(item, "exit_code")
    is_error = member(item, "status") in _FAILED or exit_code not in (0, None)
    if is_error and exit_code is not None and not output:
        output = f"exit code {exit_code}"
    return dialect.tool_result(output, is_error=is_error)


RULES: tuple[Rule, ...] = (
    rule("codex.not-included", "none", r"to use codex with your chatgpt plan, upgrade|usage_not_included"),
)

_WINDOW_OF_MINUTES = {300: "5h", 10080: "weekly", 1440: "daily", 43200: "monthly", 44640: "monthly"}

# --- headers -----------------------------------------------------------------------------------


def _header_budgets(headers: Headers, seen_at: float) -> list[Budget]:
    """Return each `x-codex-*` limit. Primary is not always five hours, so the minutes decide."""
    found = []
    for name in headers:
        match = re.fullmatch(r"x-codex-((?:[a-z0-9]{1,30}-)?(?:primary|secondary))-used-percent", name)
        if match is None:
            continue
        prefix = f"x-codex-{match[1]}-"
        percent = to_number(headers[name])
        minutes = to_number(headers.get(f"{prefix}window-minutes"))
        at = to_number(headers.get(f"{prefix}reset-at"))
        after = to_number(headers.get(f"{prefix}reset-after-seconds"))
        reset = epoch_seconds(at) if at is not None else None if after is None else seen_at + after
        reach: Reach = "account" if match[1] in ("primary", "secondary") else "model"
        window = _WINDOW_OF_MINUTES.get(int(minutes)) if minutes is not None else None
        used = None if percent is None else percent / 100
        found.append(Budget(used_ratio=used, window=window, resets_at=reset, reach=reach, source="header"))
    return found


def _decide_by_headers(headers: Headers, status: int | None, seen_at: float) -> LimitReading | None:
    spent = [budget for budget in _header_budgets(headers, seen_at) if (budget.used_ratio or 0.0) >= 1]
    if not spent or status not in (None, 429):
        return None
    latest = max(spent, key=lambda budget: budget.resets_at or 0.0)
    at, window, reach = latest.resets_at, latest.window, latest.reach
    reset = None if at is None else Reset(at=at, confidence=0.95, source="header", rule="header.codex-reset")
    return LimitReading(kind="quota", reset=reset, window=window, reach=reach, rule="header.codex-spent")


# --- events about limits -----------------------------------------------------------------------


def _read_item(event: Event) -> LimitReading | None:
    """Read an item. All but the CLI's own error notes are the agent's work."""
    item = event.get("item")
    if not isinstance(item, dict) or item.get("type") != "error":
        return None
    return LimitReading(text=str(item.get("message", "")), rule="event.item-error")


def _read_rollout(event: Event) -> LimitReading | None:
    payload = event.get("payload")
    if not isinstance(payload, dict):
        return None
    if payload.get("type") in ("error", "stream_error"):
        return error_reading(payload)
    limits = payload.get("rate_limits")
    if payload.get("type") != "token_count" or not isinstance(limits, dict):
        return None
    budgets = tuple(budget for name in ("primary", "secondary") if (budget := _rollout_budget(limits.get(name))))
    return LimitReading(budgets=budgets, rule="codex.rate-limits") if budgets else None


def _rollout_budget(limit: object) -> Budget | None:
    if not isinstance(limit, dict) or (used := to_number(limit.get("used_percent"))) is None:
        return None
    minutes, at = to_number(limit.get("window_minutes")), to_number(limit.get("resets_at"))
    window = _WINDOW_OF_MINUTES.get(int(minutes or 0))
    return Budget(used_ratio=used / 100, window=window, resets_at=epoch_seconds(at) if at else None, source="field")


# --- the stream --------------------------------------------------------------------------------

_RECONNECTING = re.compile(r"Reconnecting\.\.\. |.{0,2000}; retrying \d+/\d+ in ")
_STATUS = re.compile(r"(?:last|unexpected) status:? ([1-5]\d\d)\b")


def _read_facts(event: Event) -> dialect.Facts:
    kind = event.get("type")
    if kind == "thread.started":
        return dialect.Facts(session_id=text_at(event, "thread_id"))
    if kind == "turn.completed":
        tokens = sum_at(event.get("usage"), "input_tokens", "output_tokens")
        return dialect.Facts(turn_tokens=tokens, usage=_usage(event.get("usage")), ending=dialect.Ending(ok=True))
    if kind == "item.completed":
        return dialect.Facts(denials=_denials(event.get("item")))
    if kind == "turn.failed":
        message = text_at(event, "error", "message")
        return dialect.Facts(ending=dialect.Ending(ok=False, status=_status_in(message)), error=message)
    if kind == "error":
        message = text_at(event, "message") or ""
        status = _status_in(message)
        if _RECONNECTING.match(message):
            return dialect.Facts(is_retry=True, status=status, error=message)
        return dialect.Facts(ending=dialect.Ending(ok=False, status=status), error=message)
    return dialect.NO_FACTS


def _usage(usage: object) -> dialect.ReportedUsage:
    """Read the tokens of a turn. They are those of the whole thread, and the input includes what was cached."""
    cache_read, cache_write = count_at(usage, "cached_input_tokens"), count_at(usage, "cache_write_input_tokens")
    tokens = Tokens(
        input=max(0, count_at(usage, "input_tokens") - cache_read - cache_write),
        output=count_at(usage, "output_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
    )
    return dialect.ReportedUsage(by_model={"": tokens}, reach="conversation")


# How its router refuses, and what the system says in the sandbox where files cannot be written.
_REFUSED = (
    r"rejected by user approval settings|rejected: blocked by policy|SandboxDenied|sandbox denied"
    r"|denied by (?:the )?sandbox|failed in (?:the )?sandbox|approval required by policy|user cancelled MCP tool call"
)
_READ_ONLY = re.compile(r"^[^\n]{0,400}(?:Read-only file system|EROFS)[^\n]{0,200}", re.M)
# These are read-only, or of no concern to the work, with any sandbox and without one.
_SYSTEM_PATH = re.compile(
    r"(?<![\w.])/(?:proc|sys|dev|usr|etc|nix|boot|opt|bin|lib)\b|/\.(?:cache|config|npm|local|cargo)\b"
)
_REFUSAL = re.compile(_REFUSED)
_LONGEST_REFUSAL = 400
"""Characters. A refusal is all that such an item holds; in a longer output the words are somebody's text."""
_TOOLS = {"command_execution": "shell", "file_change": "apply_patch"}


def _denials(item: object) -> tuple[dialect.Denial, ...]:
    """Read an item that the sandbox or the approval settings refused."""
    if not isinstance(item, dict) or item.get("type") not in (*_TOOLS, "mcp_tool_call"):
        return ()
    tool = _TOOLS.get(str(item["type"])) or text_at(item, "tool") or "mcp"
    call, status = text_at(item, "id") or "", item.get("status")
    output = text_at(item, "aggregated_output") or text_at(item, "error", "message") or ""
    if status == "declined" or (status == "failed" and _REFUSAL.search(output, 0, _LONGEST_REFUSAL)):
        return (dialect.Denial(tool=tool, call=call),)
    has_failed = status == "failed" or item.get("exit_code") not in (0, None)
    lines = _READ_ONLY.findall(output) if has_failed else []
    if any(not _SYSTEM_PATH.search(line) for line in lines):
        return (dialect.Denial(tool=tool, cause="sandbox", call=call),)
    return ()


def _status_in(message: str | None) -> int | None:
    found = _STATUS.search(message or "")
    return int(found[1]) if found else None


FORMAT = dialect.Dialect(
    quiet=frozenset({"item.started", "item.updated", "item.completed", "turn.started"}),
    progress=frozenset({"item.started", "item.updated", "item.completed"}),
    news=frozenset({"thread.started", "turn.started", "turn.completed", "turn.failed", "error"}),
    marks=frozenset({"thread_id", "usage", "error", "message"}),
    read=_read_facts,
    entries=_entries,
    answers=dialect.AnswerEvents(types=frozenset({"item.completed"}), path=("item", "text"), item="agent_message"),
    denial_marks=(b'"declined"', b"Read-only file system", b"EROFS", b"rejected", b"andbox", b"user cancelled MCP"),
    turns=dialect.TurnEvents(
        calls=frozenset({"item.started"}),
        results=frozenset({"item.completed"}),
        speech=frozenset({"item.completed"}),
        tool_items=frozenset({"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"}),
        spoken_items=frozenset({"agent_message", "reasoning"}),
    ),
    fails_aloud=True,
)

# --- stderr ------------------------------------------------------------------------------------

_BANNER = re.compile(r"OpenAI Codex v|session id: ")
_SPEAKER = re.compile(r"(?:\[[^\]]{10,40}\] )?(?:user|codex|thinking|exec|tool)\b|User instructions:")
_ERROR = re.compile(r"(?:\[[^\]]{10,40}\] )?(?:ERROR|error|stream error|⚠️?|■|🖐)[: ]")
_STOPPED = "turn interrupted"
_RETRY = re.compile(r".{0,40}(?:Reconnecting\.\.\. |stream error: .{0,2000}; retrying )\d+/\d+")

_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\S{8,24} {1,4}(?:ERROR|WARN) codex_core::")


class CodexTranscript(dialect.NoticeReader):
    """The stderr of `codex exec` without `--json`: a transcript of the session, with the CLI's error lines in it.

    Before anybody has spoken, all lines are Codex's own. Later an error line could be quoted, so only the last
    one counts, and only if the run failed. Retry notices have a form that nobody quotes at the start of a line.
    """

    frame = any_of([_BANNER.pattern, _SPEAKER.pattern, _ERROR.pattern, rf"(?:{_STOPPED}|tokens used)\s*$"])

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._tokens: int | None = None
        self._ends_interrupted = False
        self._is_transcript = False
        self._has_spoken = False
        self._names_tokens = False
        self._last_error: str | None = None

    def add(self, line: str) -> list[str]:
        """Return the line if it is certainly Codex's own."""
        line = line[: dialect.CLIP]
        self._read_header(line)
        if not line:
            return []
        self._ends_interrupted = self._is_transcript and line == _STOPPED
        if self._is_transcript and _SPEAKER.match(line):
            self._has_spoken = True
        if not self._has_spoken or _RETRY.match(line) or _LOGGED.match(line):
            return [line]
        if _ERROR.match(line):
            self._last_error = line
        return []

    @property
    def is_idle(self) -> bool:
        """Whether the next line is not the number of tokens."""
        return not self._names_tokens

    def pass_over(self) -> None:
        """Take note that the last line reports no interruption."""
        self._ends_interrupted = False

    def flush(self, exit_code: int | None) -> list[str]:
        """Return the last error line if the run failed."""
        return [self._last_error] if self._last_error and exit_code else []

    def facts(self) -> dialect.Facts:
        """Return the session, the tokens and whether the last line reports an interruption."""
        ending = dialect.Ending(ok=False, interrupted=True) if self._ends_interrupted else None
        return dialect.Facts(session_id=self._session_id, run_tokens=self._tokens, ending=ending)

    def _read_header(self, line: str) -> None:
        if self._names_tokens:
            digits = line.replace(",", "")
            self._tokens = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else self._tokens
        self._names_tokens = line == "tokens used"
        if self._is_transcript and self._session_id is not None:
            return
        if _BANNER.match(line):
            self._is_transcript = True
            if line.startswith("session id: "):
                self._session_id = line.removeprefix("session id: ").strip() or None


PROVIDER = Provider(
    name="codex",
    rules=RULES,
    events={"item.completed": _read_item, "event_msg": _read_rollout},
    errors=frozenset({"turn.failed", "stream_error", "thread.error"}),
    headers=r"x-codex-.+",
    header_words=frozenset({"x-codex"}),
    budgets=_header_budgets,
    decide=_decide_by_headers,
)
CLIS = (
    dialect.AgentCli(
        name="codex",
        dialect=FORMAT,
        notices=dialect.NoticeRules(retry=r"Reconnecting\.\.\.", denied=rf"\bcodex_core::[^\n]{{0,400}}(?:{_REFUSED})"),
        stderr=CodexTranscript,
        names_minutes=True,
    ),
)
