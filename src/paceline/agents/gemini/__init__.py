"""Google: Gemini CLI, the Gemini API, Vertex and Antigravity.

Here: its sentences, the stream of Gemini CLI, its notices on stderr and its exit codes.
"""

import re
from collections.abc import Sequence

from paceline.agents import dialect
from paceline.agents.claude import ASSUMED_FORMAT
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event, count_at, member, number_at, sum_at, text_at
from paceline.detect.observation import FIVE_MINUTES, Stage
from paceline.detect.provider import LimitReading, Provider, Rule, error_reading, rule


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    match event.get("type"):
        case "message" if event.get("role") == "assistant":
            content = text_at(event, "content") or ""
            if event.get("delta") is True:
                return [dialect.TranscriptEntry(kind="said", text=content, is_piece=True)] if content else ()
            return dialect.said(content)
        case "tool_use":
            return [dialect.tool_call(text_at(event, "tool_name"), event.get("parameters"))]
        case "tool_result":
            output = text_at(event, "output") or text_at(event, "error", "message") or ""
            return dialect.tool_result(output, is_error=event.get("status") == "error")
    return ()


RULES: tuple[Rule, ...] = (
    # Limit 0: the model is not in the plan. It never clears, whatever delay is named beside it.
    rule(
        "google.limit-zero",
        "billing",
        r"quota exceeded for metric: \S{1,160}, limit: 0(?![\d.])",
        r"quota_?(?:limit_?)?value[\"'\s:]{1,10}(?:value[\"'\s:]{1,6})?0(?![\d.])",
        anywhere=True,
        stage=Stage.EXACT,
    ),
    # The words are the same for a burst and for a spent window: the wait decides.
    rule(
        "google.exhausted",
        "quota",
        r"<6>exhausted your (?:capacity|quota)",
        r"your quota will reset (?:after|in|at)",
        r"<14>\(reset after \d",
        short_wait=FIVE_MINUTES,
        reach="model",
    ),
    rule(
        "google.resource-exhausted",
        "rate",
        r"<3>resource (?:has been )?exhausted",
        r"<8>exceeded your current quota",
        r"possible quota limitations in place",
        open_end=True,
        long_wait=FIVE_MINUTES,
    ),
)

_DENIED_TYPES = frozenset({"policy_violation", "execution_denied"})
# Tools that an approval mode takes away are not registered. Other names are inventions of the model.
_TAKEN_AWAY = r"\"(?:write_file|replace|edit|run_shell_command|shell|web_fetch)\" not found(?: in registry|\.)"
_REFUSED = rf"(?:denied by policy|requires user (?:confirmation|approval)\b|Tool {_TAKEN_AWAY})"
_DENIED = re.compile(_REFUSED)


def _read_result(event: Event) -> LimitReading | None:
    error = event.get("error")
    return error_reading({"type": "result", "error": error}) if event.get("status") == "error" and error else None


def _read_facts(event: Event) -> dialect.Facts:
    kind = event.get("type")
    session_id = text_at(event, "session_id")
    if kind == "init":
        return dialect.Facts(session_id=session_id, model=text_at(event, "model"))
    if kind == "tool_result":
        return dialect.Facts(denials=_denials(event))
    if kind == "error":
        return dialect.Facts(error=text_at(event, "message"))
    is_document = kind is None and ("response" in event or "error" in event)
    if kind != "result" and not is_document:
        return dialect.NO_FACTS
    error = event.get("error")
    return dialect.Facts(
        session_id=session_id,
        turn_tokens=_tokens(event.get("stats")),
        usage=_usage(event.get("stats")),
        answer=text_at(event, "response"),
        ending=dialect.Ending(
            ok=not error and event.get("status", "success") == "success",
            status=number_at(error, "code") or dialect.status_in_text(text_at(error, "message") or ""),
        ),
        error=text_at(error, "message"),
    )


def _denials(event: Event) -> tuple[dialect.Denial, ...]:
    """Read the result of a tool that the approval mode or a policy does not allow."""
    if event.get("status") != "error":
        return ()
    said = text_at(event, "error", "message") or text_at(event, "output") or ""
    is_denied = text_at(event, "error", "type") in _DENIED_TYPES or bool(_DENIED.search(said))
    tool = re.search(r"(?:Tool|for) \"(\w{1,60})\"", said)
    return (dialect.Denial(tool=tool[1] if tool else "", call=text_at(event, "tool_id") or ""),) if is_denied else ()


def _tokens(stats: object) -> int | None:
    total = sum_at(stats, "input_tokens", "output_tokens")
    models = member(stats, "models")
    if total is not None or not isinstance(models, dict):
        return total
    counts = [number_at(model, "tokens", "total") for model in models.values()]
    return sum(count for count in counts if count is not None)


def _usage(stats: object) -> dialect.ReportedUsage | None:
    """Read the tokens of a run by model. The input includes what was cached; thoughts are priced as output."""
    models = member(stats, "models")
    if not isinstance(models, dict) or not models:
        return None
    return dialect.ReportedUsage(
        by_model={str(name): _model_tokens(each) for name, each in models.items()}, reach="run"
    )


def _model_tokens(model: object) -> Tokens:
    tokens = member(model, "tokens")
    if isinstance(tokens, dict):  # `--output-format json`
        prompt, cached = count_at(tokens, "prompt"), count_at(tokens, "cached")
        output = count_at(tokens, "candidates") + count_at(tokens, "thoughts")
    else:
        prompt, cached = count_at(model, "input_tokens"), count_at(model, "cached")
        output = max(count_at(model, "output_tokens"), count_at(model, "total_tokens") - prompt)
    return Tokens(input=max(0, prompt - cached), output=output, cache_read=cached)


def _is_document(event: Event) -> bool:
    """Return whether an object is the whole answer as `--output-format json` prints it."""
    return "stats" in event or text_at(event, "error", "message") is not None


def _exit_status(exit_code: int) -> int | None:
    """Return the HTTP status that Gemini CLI exits with, modulo 256."""
    status = exit_code + 256
    return status if 400 <= status < 512 else None


FORMAT = dialect.Dialect(
    quiet=frozenset({"message", "tool_use", "tool_result"}),
    progress=frozenset({"message", "tool_use"}),
    news=frozenset({"init", "result", "error"}),
    marks=frozenset({"timestamp", "session_id", "stats"}),
    read=_read_facts,
    entries=_entries,
    answers=dialect.AnswerEvents(
        types=frozenset({"message"}), path=("content",), ends=frozenset({"tool_use", "tool_result"})
    ),
    turns=dialect.TurnEvents(
        calls=frozenset({"tool_use"}), results=frozenset({"tool_result"}), speech=frozenset({"message"})
    ),
    is_document=_is_document,
    streams_text=True,
)

PROVIDER = Provider(
    name="gemini",
    rules=RULES,
    events={"result": _read_result},
)
CLIS = (
    dialect.AgentCli(
        name="gemini-cli",
        dialect=FORMAT,
        notices=dialect.NoticeRules(
            first_line=r"\W{0,4}(?:Attempt \d+ failed|Error when talking to |\w{0,40}QuotaError: )",
            denied=rf"Error executing tool (\w{{1,60}}): [^\n]{{0,120}}?{_REFUSED}",
            last_line=r".{0,4000}?(?:Retrying (?:after|with|in)|Max attempts reached)",
        ),
        exit_status=_exit_status,
    ),
    dialect.AgentCli(name="antigravity-cli", dialect=ASSUMED_FORMAT),
)
