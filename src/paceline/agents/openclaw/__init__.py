"""OpenClaw: the answer of `agent exec --json`, its log on stderr, and its caps on children and groups."""

import re
from collections.abc import Sequence

from paceline.agents import dialect
from paceline.core.values.session_output import Tokens
from paceline.detect.json_objects import Event, count_at, member, number_at, text_at
from paceline.detect.observation import Stage
from paceline.detect.provider import Provider, Rule, rule


def _entries(event: Event) -> Sequence[dialect.TranscriptEntry]:
    return dialect.said(text_at(event, "final") or "")


# Words that make a count one of everything that ever ran: `maxTotalPerGroup`, `max_spawns_ever`, `lifetime limit`.
_EVER = r"(?:total|life-?time|all[-_ ]?time|cumulative|(?-i:(?:(?<![a-zA-Z])ever|Ever)(?![a-z])))"
# A total of what runs at the same time is a cap as any other, one of a period becomes free with time, and one of
# anything but workers is about a single conversation.
_OTHER = (
    r"(?:active|concurren|parallel|simultaneous|running|in[-_ ]?flight|at once|at a time|at the same time|hourly|daily"
    r"|weekly|monthly|today|per[-_ ]?(?:sec|min|hour|day|week|month)|token|context|byte|char|line|turn|step|iteration"
    r"|size|length|memory|file|test|cost|budget|request(?!er)|message|retr)"
)
_LIMIT = r"(?:max\w{0,40}|limit|cap)"
_COUNT = r"[^\n(;.]{0,60}\(\d{1,6} ?/ ?\d{1,6}"

RULES: tuple[Rule, ...] = (
    # `tools.swarm.maxTotalPerGroup (200/200)`: waiting never frees a place of it
    rule(
        "openclaw.used-up",
        "billing",
        rf"<12>(?:\b\w{{1,20}}\.){{0,4}}\b(?!\w{{0,60}}{_OTHER})(?:max|\w{{0,30}}_max)\w{{0,40}}?{_EVER}\w{{0,40}}{_COUNT}",
        rf"<12>(?:\b\w{{1,20}}\.){{0,4}}\b(?!\w{{0,60}}{_OTHER})\w{{0,30}}?{_EVER}\w{{0,30}}?(?:max|limit|cap)\w{{0,20}}{_COUNT}",
        rf"<12>\b{_LIMIT}\b(?![^\n(]{{0,90}}{_OTHER})[^\n(;.]{{0,60}} {_EVER}\b{_COUNT}",
        rf"<12>\b{_EVER}\b(?![^\n(]{{0,90}}{_OTHER})[^\n(;.]{{0,60}} {_LIMIT}\b{_COUNT}",
        open_end=True,
        stage=Stage.EXACT,
        advice="waiting does not free it; raise that total or begin a new session or group, then lift the hold",
    ),
    # What `executors/openclaw_child.py` prints if the gateway does not let it in.
    rule(
        "openclaw.gateway-refused",
        "auth",
        r"the openclaw gateway (?:at \S{1,200} )?(?:refused the token|does not offer)",
        open_end=True,
        stage=Stage.EXACT,
    ),
    # Its own deadline, which a person sets, says nothing about the provider.
    rule("openclaw.own-deadline", "none", r"request timed out before a response was generated", anywhere=True),
    # `max active children for this session`: the session of the account, whatever the model
    rule(
        "openclaw.children",
        "platform",
        r"<12>max(?:imum)? (?:active |concurrent |running )?children [^\n(;.]{0,60}\(\d{1,6} ?/ ?\d{1,6}",
        r"<12>(?:\b\w{1,20}\.){0,4}\bmax_?\w{0,20}(?:children|spawns)\w{0,40} ?\(\d{1,6} ?/ ?\d{1,6}",
        open_end=True,
        stage=Stage.EXACT,
        cause="concurrency",
        reach="account",
    ),
    # `max active children for this session (5/5)`, `maxChildrenPerGroup (3/3)`, `limit reached (20/20)`
    rule(
        "openclaw.in-use",
        "platform",
        r"<12>(?:(?:\b\w{1,20}\.){0,4}\bmax\w{0,40}|limit|cap)\b[^\n(;.]{0,60}\(\d{1,4} ?/ ?\d{1,4}",
        open_end=True,
        stage=Stage.EXACT,
        cause="concurrency",
        # What a period counts is no parallel work: `Daily limit reached (50/50)`.
        unless=r"actual/limit|used\)|\bdepth\b|usage|quota|credit|\brate\b|messages|tokens|(?:dai|week|month|hour)ly",
    ),
)


def _is_answer(event: Event) -> bool:
    return isinstance(event.get("ok"), bool) and "status" in event and "sessionId" in event


def _read_facts(event: Event) -> dialect.Facts:
    if not _is_answer(event):
        return dialect.NO_FACTS
    error = text_at(event, "error", "message")
    return dialect.Facts(
        session_id=text_at(event, "sessionId") or None,
        turn_tokens=count_at(event, "usage", "total") or None,
        usage=_usage(event),
        model=text_at(event, "model"),
        model_turns=number_at(event, "assistantTurns"),
        answer=text_at(event, "final") or None,
        ending=dialect.Ending(
            ok=event.get("ok") is True,
            interrupted=text_at(event, "error", "kind") in _STOPPED,
            status=_status(error or ""),
        ),
        is_unreachable=text_at(event, "error", "kind") == "unreachable",
        error=error,
    )


def _status(error: str) -> int | None:
    """Return the HTTP status of the call that failed: `(provider returned HTTP 401)`."""
    found = _HTTP_STATUS.search(error)
    return int(found[1]) if found else dialect.status_in_text(error)


_HTTP_STATUS = re.compile(r"\([\w ,]{0,40}HTTP ([45]\d\d)\)")
_STOPPED = frozenset({"aborted", "interrupted"})
"""Kinds of errors of a run that somebody or a restart ended: the work itself did not fail."""


def _usage(event: Event) -> dialect.ReportedUsage | None:
    """Read the tokens of the run. The input is without what was cached."""
    usage = member(event, "usage")
    if not isinstance(usage, dict):
        return None
    tokens = Tokens(
        input=count_at(usage, "input"),
        output=count_at(usage, "output"),
        cache_read=count_at(usage, "cacheRead"),
        cache_write=count_at(usage, "cacheWrite"),
    )
    if tokens == Tokens():
        return None  # of a sub-agent only the sum is known
    return dialect.ReportedUsage(by_model={text_at(event, "model") or "": tokens}, reach="run")


_LOG_LINE = re.compile(r"(?:\x1b\[[0-9;]{0,8}m)?\[[a-z][\w./-]{0,60}\]")
_FAILED_CALL = re.compile(
    r"embedded run agent end: .{0,300}? isError=true .{0,800}?\berror=(.{0,600}?) rawError=(.{1,600})"
)
_RETRY = re.compile(r"transient same-model retry \d{1,3}/\d{1,3} for .{1,200}? delayMs=\d{1,9}")
_RETRY_AFTER = re.compile(r"Retry-After: \d{1,9} seconds")


def _notice_in_log(line: str) -> str | None:
    """Return a notice, the announcement of a retry, or the words of the provider about a failed call.

    The answer at the end leaves those words out. Nothing else in the log counts.
    """
    if not _LOG_LINE.match(line):
        return line
    if retry := _RETRY.search(line):
        return retry[0]
    failed = _FAILED_CALL.search(line)
    if failed is None:
        return None
    wait = _RETRY_AFTER.search(failed[1])
    return f"API Error: {failed[2]} {wait[0] if wait else ''}".rstrip()


FORMAT = dialect.Dialect(
    quiet=frozenset(),
    progress=frozenset(),
    news=frozenset(),
    marks=frozenset({"sessionId"}),
    read=_read_facts,
    entries=_entries,
    is_document=_is_answer,
    fails_aloud=True,
)

PROVIDER = Provider(
    name="openclaw",
    rules=RULES,
)
CLIS = (
    dialect.AgentCli(
        name="openclaw",
        dialect=FORMAT,
        notices=dialect.NoticeRules(retry=r"^transient same-model retry "),
        notice_in_log=_notice_in_log,
    ),
)
