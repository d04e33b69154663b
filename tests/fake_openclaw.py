"""A double of the gateway of OpenClaw 2026.9.6: what was measured of `/tools/invoke`, and nothing else.

with FakeOpenClaw(max_children=3) as claw:
    ...                                    # OPENCLAW_GATEWAY_URL = claw.url, OPENCLAW_GATEWAY_TOKEN = claw.token

A child of a model `slow/...` works until it is cancelled or `finish` is called, one of `limited/...` fails as with a
provider that refuses it, and any other answers at once. The suite runs the same tests over it and over the real one.
"""

import contextlib
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

RATE_LIMIT = "⚠️ API rate limit reached. Please try again later."
INTERRUPTED = (
    "Subagent execution was interrupted by a Gateway restart. Inspect retained session history and unce…",
    "subagent run lost active execution context",
    "a wording that nobody has seen yet",
)
"""What was said of children that died with the gateway. The words differ from run to run."""
GHOST_SECONDS = 10.0
"""How long children that died with the gateway still count after its restart."""
LISTED_TASK = 110
"""Characters of a task in the list of children."""
Json = dict[str, Any]


class FakeChild(msgspec.Struct, kw_only=True):
    """One sub-agent of the double."""

    parent: str
    label: str
    task: str
    model: str
    cwd: str | None
    started_at: float
    task_id: str
    run_id: str
    status: str = "running"
    is_at_work: bool = False
    """Whether it has a place in the lane. Accepted is not running."""
    error: str | None = None
    said: str = ""
    died_at: float | None = None

    @property
    def key(self) -> str:
        return f"agent:main:subagent:{self.run_id}"

    @property
    def is_over(self) -> bool:
        return self.status not in ("queued", "running")


class FakeOpenClaw:
    """The gateway. `stop` and `start` make an outage, with `kill` its children die."""

    def __init__(
        self,
        *,
        max_children: int = 5,
        max_concurrent: int = 8,
        total: int | None = None,
        allowed: tuple[str, ...] = ("sessions_spawn", "sessions_send"),
        uptime: float = 3600.0,
        ghost_seconds: float = GHOST_SECONDS,
    ) -> None:
        self.token = "testtoken"
        self.max_children = max_children
        self.total = total
        self.children: list[FakeChild] = []
        self.spawns = 0
        self.peak = 0
        """The most children that were active at once."""
        self.lost_answers = 0
        """So many of the next answers to a spawning are lost, although the child was accepted."""
        self._max_concurrent = max_concurrent
        self._allowed = allowed
        self._ghost_seconds = ghost_seconds
        self._started_at = time.monotonic() - uptime
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- what a test does ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, always on the same port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler_of(self))
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Answer nobody."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._changed:
            self._changed.notify_all()

    def kill(self) -> None:
        """Die as by SIGKILL. After the next `start` the children count for a while, and end as interrupted."""
        self.stop()
        with self._changed:
            self._started_at = time.monotonic()
            for child in self.children:
                if not child.is_over:
                    child.died_at = self._started_at

    def finish(self, unit: str, said: str = "done", error: str | None = None) -> None:
        """End the active child of a unit."""
        with self._changed:
            [child] = [each for each in self.active() if f" {unit} " in each.label]
            child.status, child.said, child.error = ("failed" if error else "completed"), said, error
            self._advance()
            self._changed.notify_all()

    def active(self) -> list[FakeChild]:
        """Return the children that count."""
        return [child for child in self.children if not child.is_over]

    def wait_for(self, count: int, timeout: float = 20.0) -> None:
        """Wait until so many children are active."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.active()) == count, timeout):
                raise AssertionError(f"{len(self.active())} children are active, not {count}")

    # -- what a request does -------------------------------------------------------------------------------

    def ready(self) -> Json:
        return {"ready": True, "failing": [], "uptimeMs": round((time.monotonic() - self._started_at) * 1000)}

    def invoke(self, tool: str, args: Json, parent: str) -> tuple[int, Json] | None:
        """Return status and body of an answer; None for one that is lost."""
        if tool == "sessions_spawn" and tool not in self._allowed:
            return 404, {"ok": False, "error": {"type": "not_found", "message": f"Tool not available: {tool}"}}
        with self._changed:
            self._advance()
            match tool, args.get("action"):
                case "sessions_spawn", _ if "task" not in args:
                    return 400, {"ok": False, "error": {"type": "tool_error", "message": "task required"}}
                case "sessions_spawn", _:
                    details = self._spawn(args, parent)
                    if details["status"] == "accepted" and self.lost_answers:
                        self.lost_answers -= 1
                        return None
                case "subagents", "list":
                    details = self._list(parent)
                case "subagents", "wait":
                    details = self._wait(args["taskIds"], float(args.get("timeoutSeconds", 30)))
                case "subagents", "cancel":
                    details = self._cancel(args["taskId"])
                case "sessions_history", _:
                    details = self._history(args["sessionKey"])
                case _:
                    message = f"Tool not available: {tool}"
                    return 404, {"ok": False, "error": {"type": "not_found", "message": message}}
        return 200, {"ok": True, "result": {"content": [], "details": details}}

    def _spawn(self, args: Json, parent: str) -> Json:
        """Accept a child, or refuse it at a cap or a total."""
        mine = [child for child in self.active() if child.parent == parent]
        if len(mine) >= self.max_children:
            count = f"({len(mine)}/{self.max_children}; agents.defaults.subagents.maxChildrenPerAgent)"
            reached = "sessions_spawn has reached max active children for this session"
            return {"status": "forbidden", "error": f"{reached} {count}."}
        if self.total is not None and self.spawns >= self.total:
            count = f"({self.spawns}/{self.total})"
            return {"status": "forbidden", "error": f"sessions_spawn reached tools.swarm.maxTotalPerGroup {count}."}
        child = FakeChild(
            parent=parent,
            label=args.get("label", ""),
            task=args["task"],
            model=args.get("model", "fake/m1"),
            cwd=args.get("cwd"),
            started_at=time.monotonic(),
            task_id=str(uuid.uuid4()),
            run_id=str(uuid.uuid4()),
        )
        self.children.append(child)
        self.spawns += 1
        self.peak = max(self.peak, len(self.active()))
        self._advance()
        self._changed.notify_all()
        return {"status": "accepted", "childSessionKey": child.key, "runId": child.run_id, "mode": "run"}

    def _advance(self) -> None:
        """Let time pass: the dead end, the lane moves on, and quick children answer."""
        now = time.monotonic()
        for child in self.active():
            if child.died_at is not None and now >= child.died_at + self._ghost_seconds:
                child.status, child.error = "failed", INTERRUPTED[self.children.index(child) % len(INTERRUPTED)]
        for child in self.active():
            busy = sum(each.is_at_work for each in self.active())
            if child.died_at is None and not child.is_at_work and busy < self._max_concurrent:
                child.is_at_work = True
                if child.model.startswith("limited/"):
                    child.status, child.error = "failed", RATE_LIMIT
                elif not child.model.startswith("slow/"):
                    child.status, child.said = "completed", f"Answer to: {child.task}"

    def _list(self, parent: str) -> Json:
        mine = [child for child in reversed(self.children) if child.parent == parent]
        return {
            "status": "ok",
            "action": "list",
            "tasks": [_task_row(child) for child in mine],
            "active": [_run_row(child) for child in mine if not child.is_over],
            "recent": [_run_row(child) for child in mine if child.is_over],
        }

    def _wait(self, ids: list[str], seconds: float) -> Json:
        chosen = [child for child in self.children if child.task_id in ids]
        if not chosen:
            return {"status": "ok", "action": "wait", "reason": "unavailable", "tasks": []}
        deadline = time.monotonic() + seconds
        while not any(child.is_over for child in chosen) and self._server is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._changed.wait(min(left, 0.1))
            self._advance()
        reason = "completed" if any(child.is_over for child in chosen) else "timeout"
        return {"status": "ok", "action": "wait", "reason": reason, "tasks": [_task_row(child) for child in chosen]}

    def _cancel(self, task_id: str) -> Json:
        found = [child for child in self.active() if child.task_id == task_id]
        for child in found:
            child.status, child.error = "cancelled", "Cancelled by operator."
        self._changed.notify_all()
        return {"status": "cancelled", "taskId": task_id, "found": bool(found), "cancelled": bool(found)}

    def _history(self, key: str) -> Json:
        said = next((child.said for child in self.children if child.key == key), "")
        return {"messages": [{"role": "assistant", "content": [{"type": "text", "text": said}]}] if said else []}


def _state(child: FakeChild) -> str:
    if child.is_over:
        return "finished"
    return "running" if child.is_at_work and child.died_at is None else "unknown"


def _task_row(child: FakeChild) -> Json:
    row: Json = {"taskId": child.task_id, "status": child.status, "label": child.label}
    row["execution"] = {"state": _state(child)}
    if child.error:
        row["error"] = child.error
    if child.said:
        row["progressSummary"] = child.said[:LISTED_TASK]
    return row


def _run_row(child: FakeChild) -> Json:
    status = "done" if child.status == "completed" else child.status
    cut = child.task if len(child.task) <= LISTED_TASK else f"{child.task[: LISTED_TASK - 1]}…"
    row: Json = {"runId": child.run_id, "sessionKey": child.key, "label": child.label, "task": cut, "status": status}
    row["model"] = child.model
    row["execution"] = {"state": _state(child)}
    if child.is_over:
        row["totalTokens"] = 100
    return row


def _handler_of(claw: FakeOpenClaw) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/readyz":
                self._answer(200, claw.ready())
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if self.headers.get("Authorization") != f"Bearer {claw.token}":
                self._answer(401, {"error": {"message": "Unauthorized", "type": "unauthorized"}})
                return
            answer = claw.invoke(body["tool"], body.get("args", {}), body.get("sessionKey", "main"))
            if answer is None:
                self.close_connection = True
                return
            self._answer(*answer)

        def _answer(self, status: int, body: Json) -> None:
            encoded = json.dumps(body).encode()
            with contextlib.suppress(OSError):  # whoever asked may have left
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    return Handler
