"""Lines that Claude Code prints about its session, its limits and its end, for scripted sessions."""

import json


def init(session: str = "s1", key: str = "none") -> str:
    return _line(type="system", subtype="init", session_id=session, apiKeySource=key, model="opus")


def answer(session: str = "s1", text: str = "Working on it.") -> str:
    usage = {"input_tokens": 12, "output_tokens": 8}
    message = {"id": "m1", "model": "opus", "content": [{"type": "text", "text": text}], "usage": usage}
    return _line(type="assistant", session_id=session, message=message)


def done(session: str = "s1") -> str:
    usage = {"input_tokens": 12, "output_tokens": 8}
    return _line(type="result", subtype="success", is_error=False, result="Done.", session_id=session, usage=usage)


def rejected(resets_at: float, session: str = "s1", window: str = "five_hour") -> str:
    info = {"status": "rejected", "resetsAt": int(resets_at), "rateLimitType": window}
    return _line(type="rate_limit_event", rate_limit_info=info, session_id=session)


def warned(used: float, resets_at: float, session: str = "s1", window: str = "five_hour") -> str:
    info = {"status": "allowed_warning", "resetsAt": int(resets_at), "rateLimitType": window, "utilization": used}
    return _line(type="rate_limit_event", rate_limit_info=info, session_id=session)


def offline(session: str = "s1") -> str:
    said = "API Error: Unable to connect to API (ConnectionRefused)"
    return _line(type="result", subtype="success", is_error=True, result=said, session_id=session)


def contradicting(resets_at: float, session: str = "s1", used: float = 0.23) -> str:
    """Return a refusal for too many at once as newer versions report it: rejected, of a window that is open."""
    windows = {"five_hour": {"status": "allowed", "utilization": used, "resetsAt": int(resets_at)}}
    info = {"status": "rejected", "resetsAt": int(resets_at), "rateLimitType": "five_hour", "unifiedWindows": windows}
    return _line(type="rate_limit_event", rate_limit_info=info, session_id=session)


def limit_without_a_time() -> str:
    return _line(type="result", subtype="success", is_error=True, result="You've hit your usage limit", session_id="s1")


def retry(seconds: float, nth: int = 1, status: int = 429, session: str = "s1") -> str:
    error = "rate_limit" if status == 429 else "overloaded"
    fields = {"attempt": nth, "max_retries": 10, "retry_delay_ms": seconds * 1000, "error_status": status}
    return _line(type="system", subtype="api_retry", error=error, session_id=session, **fields)


def overage(session: str = "s1") -> str:
    info = {"status": "allowed", "resetsAt": 0, "rateLimitType": "five_hour", "isUsingOverage": True}
    return _line(type="rate_limit_event", rate_limit_info=info, session_id=session)


def _line(**event: object) -> str:
    return json.dumps(event) + "\n"
