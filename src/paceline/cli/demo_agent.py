"""The demo's agent: a program of its own that works through a task in steps and prints what Claude Code prints.

    demo_agent.py PROMPT [--resume ID]

It imports nothing of Paceline, and only the standard library: for the engine it is one more agent CLI. It saves its
conversation after every answer, so that a later session can continue it. It waits out a short 429 by itself and gives
up when a quota window is spent, as the real ones do.
"""

import http.client
import json
import os
import sys
import time
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

MODEL = "claude-opus-4-6"
UNIFIED = "anthropic-ratelimit-unified"
MOST_RETRIES = 2
"""A short 429 is over by then; a session that fails more often gives up, as the real ones do."""
PATIENCE_SECONDS = 30.0
"""A local server that does not answer within this time is gone."""
OK, TOO_MANY_REQUESTS = 200, 429


def main(arguments: list[str]) -> int:
    prompt, session_id = arguments[0], arguments[2] if arguments[1:2] == ["--resume"] else os.urandom(8).hex()
    path = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], f"{session_id}.json")
    messages: list[Json] = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            messages = json.load(file)
    print_event("system", session_id, subtype="init", apiKeySource="none", model=MODEL)
    steps = int(os.environ["DEMO_STEPS"])
    for step in range(len(messages) // 2, steps):
        messages.append({"role": "user", "content": f"Step {step + 1} of {steps}: {prompt}"})
        answer = ask(messages, session_id)
        if answer is None:
            return 1
        messages.append({"role": "assistant", "content": answer})
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(messages, file)
        os.replace(path + ".new", path)
    result(session_id, f"Done in {steps} steps: {prompt}")
    return 0


def ask(messages: list[Json], session_id: str) -> str | None:
    """Return the answer, or None if the provider refuses for now."""
    for attempt in range(1, MOST_RETRIES + 2):
        status, headers, body = post(messages, session_id)
        if status == OK:
            text = str(body["content"][0]["text"])
            answered(session_id, headers, body)
            return text
        if headers.get(f"{UNIFIED}-status") == "rejected":
            print_window(session_id, headers, "rejected")
            result(session_id, "You've hit your session limit", status)
            return None
        if status != TOO_MANY_REQUESTS or attempt > MOST_RETRIES:
            break
        delay = float(headers.get("retry-after", "1"))
        retry = {"attempt": attempt, "max_retries": MOST_RETRIES, "retry_delay_ms": delay * 1000}
        print_event("system", session_id, subtype="api_retry", error_status=status, error="rate_limit", **retry)
        time.sleep(delay)
    result(session_id, f"API Error: {status} {body}", status)
    return None


def post(messages: list[Json], session_id: str) -> tuple[int, dict[str, str], Json]:
    address = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_SECONDS)
    try:
        metadata = {"user_id": f"user_demo_session_{session_id}"}
        body = json.dumps({"model": MODEL, "max_tokens": 1000, "messages": messages, "metadata": metadata})
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ['CLAUDE_CODE_OAUTH_TOKEN']}",
        }
        connection.request("POST", "/v1/messages", body, headers)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return response.status, received, json.loads(response.read())
    finally:
        connection.close()


def answered(session_id: str, headers: dict[str, str], body: Json) -> None:
    print_event("assistant", session_id, message=body)
    status = headers.get(f"{UNIFIED}-status")
    if status is not None:
        print_window(session_id, headers, status)


def print_window(session_id: str, headers: dict[str, str], status: str) -> None:
    info = {
        "status": status,
        "resetsAt": int(headers[f"{UNIFIED}-reset"]),
        "rateLimitType": headers[f"{UNIFIED}-representative-claim"],
        "utilization": float(headers[f"{UNIFIED}-5h-utilization"]),
        "isUsingOverage": False,
    }
    print_event("rate_limit_event", session_id, rate_limit_info=info)


def result(session_id: str, text: str, error_status: int | None = None) -> None:
    failed = error_status is not None
    print_event("result", session_id, subtype="success", is_error=failed, api_error_status=error_status, result=text)


def print_event(kind: str, session_id: str, **fields: object) -> None:
    print(json.dumps({"type": kind, "session_id": session_id, **fields}), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(f"the provider cannot be reached: {error}")
