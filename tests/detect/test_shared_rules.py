"""Nobody answered: the family of connection errors, in the words of every CLI, and all that only resembles it."""

from tests.agents.stream.agent_output import (
    ANSWER,
    DONE,
    GEMINI_INIT,
    INIT,
    OPENCODE_ERROR,
    QUOTA,
    REJECTED,
    RETRY,
    THREAD,
    AgentRun,
    kinds,
    lines,
    outcome_of,
)
from tests.detect.each_row import each_row

from paceline.agents.other_clis import is_client_error
from paceline.core.signals import Unreachable
from paceline.detect import Observation, detect

UNANSWERED = RETRY | {"error_status": None, "error": "unknown"}
OUTPUT = (
    "curl: (7) Failed to connect to localhost port 3000: Connection refused\nError: connect ECONNREFUSED 127.0.0.1:3000"
)


def failed(text: str) -> dict[str, object]:
    return DONE | {"is_error": True, "api_error_status": None, "result": text}


def gemini_failed(message: str) -> dict[str, object]:
    return {"type": "result", "timestamp": "t", "status": "error", "error": {"type": "Error", "message": message}}


CLAUDE = [
    "API Error: Connection error.",
    "API Error: Unable to connect to API (ECONNRESET)",
    "API Error: Unable to connect to API (ConnectionRefused)",
    "API Error: Unable to connect to API due to poor internet connection",
    "API Error: Request timed out.",
    "API Error: The socket connection was closed unexpectedly. For more information, pass `verbose: true` to fetch()",
    "API Error: Unable to connect to API: Self-signed certificate detected. Check your proxy or corporate certificates",
    "Unable to connect to Anthropic services · Failed to connect to api.anthropic.com: ERR_BAD_REQUEST ENOTFOUND",
    "API Error: getaddrinfo EAI_AGAIN api.anthropic.com",
    "API Error: fetch failed",
    "API Error: Unable to connect. Is the computer able to access the url?",
    "API Error (Connection error.) · Retrying in 1 seconds… (attempt 1/10)",
]
CODEX = [
    "stream disconnected before completion: error sending request for url (https://chatgpt.com/backend-api/codex/responses)",
    "Reconnecting... 5/5 (stream disconnected before completion: tls handshake eof)",
    "stream disconnected before completion: IO error: Connection refused (os error 111)",
    "stream disconnected before completion: failed to lookup address information: Name or service not known",
    "error sending request for url (http://127.0.0.1:9/v1/responses): connection timed out",
]
GEMINI = [
    "exception TypeError: fetch failed sending request",
    "[API Error: exception TypeError: fetch failed sending request]",
    "request to https://google.example/v1 failed, reason: getaddrinfo ENOTFOUND google.example",
    "Client network socket disconnected before secure TLS connection was established",
    "unable to get local issuer certificate",
    "connect EHOSTUNREACH 142.250.1.95:443",
]
OPENCODE = [
    "Cannot connect to API: The socket connection was closed unexpectedly.",
    "Cannot connect to API: Unable to connect. Is the computer able to access the url?",
    "Unable to connect. Is the computer able to access the url?",
    "connect ECONNREFUSED 203.0.113.1:443",
]
COMMANDS = [
    "curl: (6) Could not resolve host: api.example.com",
    "curl: (28) Failed to connect to api.example.com port 443 after 130000 ms: Connection timed out",
    "curl: (35) OpenSSL SSL_connect: Connection reset by peer in connection to api.example.com:443",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.com', port=443): Max retries exceeded",
    "urllib3.exceptions.NewConnectionError: <urllib3.connection.HTTPSConnection>: [Errno 111] Connection refused",
    "httpx.ConnectError: [Errno -2] Name or service not known",
    "httpx.ConnectTimeout: timed out",
    "openai.APIConnectionError: Connection error.",
    "anthropic.APIConnectionError: Connection error.",
    "openai.APITimeoutError: Request timed out.",
    "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host api.openai.com:443 ssl:default",
    "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    'Error: Get "https://api.example.com/v1": dial tcp: lookup api.example.com on 10.0.0.1:53: no such host',
    "Error: getaddrinfo EAI_AGAIN api.example.com",
    "TypeError: fetch failed",
    "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
]


@each_row("text", CLAUDE)
def test_a_claude_run_that_nobody_answered(text: str) -> None:
    assert outcome_of("claude-code", lines(INIT, failed(text)), 1) == "unreachable"
    assert outcome_of("claude-code", f"{text}\n".encode(), 1) == "unreachable"


@each_row("text", CODEX)
def test_a_codex_run_that_nobody_answered(text: str) -> None:
    events = lines(THREAD, {"type": "turn.started"}, {"type": "error", "message": text})
    assert outcome_of("codex", events + lines({"type": "turn.failed", "error": {"message": text}}), 1) == "unreachable"
    assert outcome_of("codex", b"", 1, f"ERROR: {text}\n".encode()) == "unreachable"


@each_row("text", GEMINI)
def test_a_gemini_run_that_nobody_answered(text: str) -> None:
    assert outcome_of("gemini-cli", lines(GEMINI_INIT, gemini_failed(text)), 1) == "unreachable"
    assert (
        outcome_of("gemini-cli", b"", 1, f"Error when talking to Gemini API Error: {text}\n".encode()) == "unreachable"
    )


@each_row("text", OPENCODE)
def test_an_opencode_run_that_nobody_answered(text: str) -> None:
    error = {"name": "APIError", "data": {"message": text, "isRetryable": True}}
    assert outcome_of("opencode", lines(OPENCODE_ERROR | {"error": error}), 1) == "unreachable"


@each_row("text", ["fetch failed", "Request timed out.", "connect ETIMEDOUT 140.82.112.21:443"])
def test_a_copilot_run_that_nobody_answered(text: str) -> None:
    error = {"type": "session.error", "data": {"errorType": "query", "message": text}}
    assert outcome_of("copilot-cli", lines(error, {"type": "result", "exitCode": 1}), 1) == "unreachable"


def test_an_aider_run_that_nobody_answered() -> None:
    shown = b"litellm.APIConnectionError: OpenAIException - Connection error.\nRetrying in 0.2 seconds...\n"
    assert outcome_of("aider", shown * 3, 1) == "unreachable"


@each_row("text", COMMANDS)
def test_a_failed_command_whose_http_client_found_nobody(text: str) -> None:
    assert is_client_error(text)
    assert outcome_of("command", b"working\n", 1, f"{text}\n".encode()) == "unreachable"
    assert outcome_of("command", b"working\n", 0, f"{text}\n".encode()) == "success"


def test_the_signal_of_an_event_comes_at_once_and_that_of_a_text_when_the_run_ends() -> None:
    structured, text = AgentRun("claude-code"), AgentRun("claude-code")

    assert kinds(structured.prints(lines(INIT, failed("API Error: Connection error.")))) == ["Unreachable"]
    assert text.prints(b"API Error: Connection error.\n", "stderr") == []
    assert kinds(text.reader.close(exit_code=1, seen_at=text.now)) == ["Unreachable"]


def test_the_second_announced_retry_of_an_unanswered_call_is_reported_at_once() -> None:
    run = AgentRun("gemini-cli")
    notice = b"Attempt %d failed. Retrying with backoff... Error: exception TypeError: fetch failed sending request\n"
    trace = b"    at file:///opt/bundle/chunk-JDPZ4CE3.js:267671:13\n"

    assert run.prints(notice % 1 + trace, "stderr") == []
    assert run.prints(notice % 2 + trace, "stderr") == [Unreachable(source="text")]
    assert run.prints(notice % 3 + trace, "stderr") == []
    assert run.ends(143) == "unreachable"


def test_the_first_unanswered_call_may_be_a_single_lost_connection() -> None:
    run = AgentRun("claude-code")

    assert run.prints(lines(INIT, UNANSWERED)) == []
    assert run.prints(lines(UNANSWERED | {"attempt": 2})) == [Unreachable(confidence=0.9, source="field")]
    assert run.prints(lines(UNANSWERED | {"attempt": 3})) == []
    assert run.ends(143) == "unreachable"


def test_an_answer_ends_the_outage() -> None:
    run = AgentRun("claude-code")
    run.prints(lines(INIT, UNANSWERED, UNANSWERED | {"attempt": 2}, ANSWER))

    assert run.ends(143) == "interrupted"


def test_a_lost_connection_does_not_undo_a_spent_window() -> None:
    run = AgentRun("claude-code")

    assert run.prints(lines(INIT, REJECTED)) == [QUOTA]
    run.prints(lines(failed("API Error: Connection error.")))
    assert run.ends(1) == "quota_window"


PROSE = [
    "The test server is down: connect ECONNREFUSED 127.0.0.1:3000. I will start it.",
    "I got `fetch failed` and a Connection error from the API, so I added a retry.",
    "Error: getaddrinfo ENOTFOUND api.example.com",
    "curl: (6) Could not resolve host: example.com",
]


@each_row("text", PROSE)
def test_connection_errors_in_the_agents_work_are_no_outage(text: str) -> None:
    answer = ANSWER | {"message": {"id": "m", "model": "opus", "content": [{"type": "text", "text": text}]}}
    result = {"type": "tool_result", "is_error": True, "content": f"{OUTPUT}\n{text}"}
    tool = {"type": "user", "session_id": "s1", "message": {"role": "user", "content": [result]}}
    run = AgentRun("claude-code")

    assert run.prints(lines(INIT, answer, tool, DONE | {"result": text})) == []
    assert run.ends(0) == "success"
    item = {
        "id": "i",
        "type": "command_execution",
        "aggregated_output": f"{OUTPUT}\n{text}",
        "exit_code": 7,
        "status": "failed",
    }
    message = {"id": "j", "type": "agent_message", "text": text}
    items = ({"type": "item.completed", "item": item}, {"type": "item.completed", "item": message})
    codex = AgentRun("codex")
    assert codex.prints(lines(THREAD, *items)) == []
    assert codex.ends(1) == "interrupted"
    assert outcome_of("gemini-cli", f"{text}\n".encode(), 0) == "success"
    assert outcome_of("claude-code", f"{text}\n".encode(), 0) == "success"


@each_row(
    "line",
    [
        b"Error connecting to MCP server 'files': connect ECONNREFUSED 127.0.0.1:8080",
        b"[telemetry] export failed: Error: getaddrinfo ENOTFOUND stats.example.com",
        b"Failed to check for updates: fetch failed",
        b"SessionStart hook error: connect ETIMEDOUT 10.0.0.1:443",
        b"| the connection was refused or timed out | 502 or 504: nothing was sent |",
    ],
)
def test_what_beside_the_provider_cannot_be_reached_is_no_outage(line: bytes) -> None:
    run = AgentRun("claude-code")
    run.prints(line + b"\n", "stderr")
    run.prints(lines(INIT, DONE | {"is_error": True, "subtype": "error_max_turns", "result": None}))

    assert run.ends(1) == "failed"


@each_row(
    ("text", "outcome"),
    [
        ("API Error: 502 Bad Gateway: connection refused", "overloaded"),
        (
            "API Error: 503 upstream connect error or disconnect/reset before headers. reset reason: connection",
            "overloaded",
        ),
        ("API Error: 504 Gateway Timeout: request timed out", "overloaded"),
        ("API Error: 400 the tool printed: connect ECONNREFUSED", "failed"),
        ("API Error: 529 Overloaded. Connection error", "overloaded"),
    ],
)
def test_whoever_answers_with_a_status_is_reachable(text: str, outcome: str) -> None:
    assert outcome_of("claude-code", lines(INIT, failed(text)), 1) == outcome


@each_row(
    "text",
    [
        "stream disconnected before completion: stream closed before response.completed",
        "stream disconnected before completion: Transport error: network error: error decoding response body",
    ],
)
def test_an_answer_that_broke_off_was_an_answer(text: str) -> None:
    assert outcome_of("codex", lines(THREAD, {"type": "turn.failed", "error": {"message": text}}), 1) == "failed"


@each_row(
    "line",
    [
        "curl: (7) Failed to connect to localhost port 3000 after 0 ms: Connection refused",
        "Error: connect ECONNREFUSED 127.0.0.1:5432",
        "curl: (22) The requested URL returned error: 404",
        "AssertionError: expected ECONNREFUSED, got 200",
        "psycopg.OperationalError: connection refused",
        "2 tests failed: test_connection_error, test_dns",
        "I could not resolve host names in the config",
    ],
)
def test_a_command_that_fails_otherwise_has_failed(line: str) -> None:
    assert outcome_of("command", b"", 1, f"{line}\n".encode()) == "failed"


@each_row(
    "text",
    [
        "⏺ The dev server is not running: connect ECONNREFUSED 127.0.0.1:3000",
        "  Error: connect ECONNREFUSED 127.0.0.1:5432\n  at TCPConnectWrap.afterConnect",
        "fetch failed",
    ],
)
def test_a_screen_shows_connection_errors_of_the_agents_work(text: str) -> None:
    assert detect(Observation(provider="claude-code", channel="screen", text=text, seen_at=1.79e9)) == []
