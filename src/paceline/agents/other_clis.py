"""CLIs that have no profile: Cursor, CLIs of which nothing special is known, and any other command.

Here: Cursor's slow pool, its connection errors and what it adds to Claude Code's stream format; the HTTP clients
that an unknown command may be built on. Never here: the sentences that most providers share.
"""

import re

import msgspec

from paceline.agents import claude
from paceline.agents.dialect import AgentCli, Denial, Facts, LastLine, NoticeRules
from paceline.detect.json_objects import Event, text_at
from paceline.detect.provider import Provider, Rule, rule

RULES: tuple[Rule, ...] = (
    rule("cursor.slow-pool", "rate", r"using the slow pool", anywhere=True),
    rule(
        "cursor.connect",
        "overloaded",
        r"connect ?error:? \[?(?:resource_exhausted|unavailable)|\[(?:resource_exhausted|unavailable)\] error",
    ),
)
_REFUSALS = frozenset({"rejected", "permissionDenied"})
"""Members of a tool call's result if it was not allowed."""


def _read_facts(event: Event) -> Facts:
    return Facts(denials=_denials(event)) if event.get("type") == "tool_call" else claude.FORMAT.read(event)


def _denials(event: Event) -> tuple[Denial, ...]:
    """Read a completed tool call: `{"tool_call": {"shellToolCall": {"result": {"rejected": {...}}}}}`."""
    calls = event.get("tool_call")
    denied = []
    for name, call in calls.items() if isinstance(calls, dict) else ():
        result = call.get("result") if isinstance(call, dict) else None
        if isinstance(result, dict) and not _REFUSALS.isdisjoint(result):
            denied.append(Denial(tool=str(name).removesuffix("ToolCall"), call=text_at(event, "call_id") or ""))
    return tuple(denied)


FORMAT = msgspec.structs.replace(
    claude.FORMAT, read=_read_facts, denial_marks=tuple(f'"{name}"'.encode() for name in sorted(_REFUSALS))
)
PROVIDER = Provider(name="cursor", rules=RULES)

CLIS = (
    AgentCli(name="cursor-agent", dialect=FORMAT),
    *(AgentCli(name=name, dialect=claude.ASSUMED_FORMAT) for name in ("amp", "crush", "droid", "grok-cli", "kimi-cli")),
)

# --- commands of which nothing is known --------------------------------------------------------

_CLIENT = re.compile(
    r"curl: \((?:5|6|7|28|35|52|55|56|58|60|77)\) "
    r"|wget: (?:unable to resolve|.{0,80}(?:connection refused|timed out))"
    r"|(?:requests|urllib3|httpx|httpcore|aiohttp|openai|anthropic|litellm|botocore)(?:\.\w{1,40}){0,3}"
    r"\.(?:\w{0,20}Connect\w{0,20}(?:Error|Timeout)|\w{0,12}(?:Timeout|SSLError)(?:Error)?|NewConnectionError"
    r"|MaxRetryError|RemoteProtocolError|ServerDisconnectedError|ReadError|NameResolutionError)\b"
    r"|ssl\.SSL\w{0,30}Error: "
    r"|urllib\.error\.URLError: <urlopen error (?!unknown url)"
    r"|(?:Error: )?(?:getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|connect (?:ECONNREFUSED|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)) "
    r"|TypeError: fetch failed"
    r"|.{0,200}\bdial tcp\b.{0,200}(?:no such host|connection refused|i/o timeout|network is unreachable)"
)
_LOCAL = re.compile(r"\blocalhost\b|\b127\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\[?::1\b|\b0\.0\.0\.0\b|\.local\b", re.I)


def is_client_error(line: str) -> bool:
    """Return whether the last line of a failed command is a known HTTP client's report that nobody answered.

    A server on this machine is the command's own concern: it fails or works with the command.
    """
    return bool(_CLIENT.match(line)) and not _LOCAL.search(line)


UNKNOWN_CLI = AgentCli(
    name="",
    dialect=claude.ASSUMED_FORMAT,
    notices=NoticeRules(retry=r"[Rr]etrying (?:in|after|with)\b"),
    stderr=LastLine,
    is_unanswered=is_client_error,
)
"""An unknown command. Its stderr may quote any text, so only the last line of a failed run counts."""
