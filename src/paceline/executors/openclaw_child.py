"""A program that runs one sub-agent through the gateway of OpenClaw, and ends with it.

To its supervisor it is an agent CLI as any other: it reads its task on standard input, prints the answer of
`openclaw agent exec --json`, and cancels its child when it is stopped. It is started by its path, so that it imports
nothing but the standard library: hundreds of them cost little.

The gateway keeps the child, not this program. So a child has the attempt in its label, and is looked up by it before
one is spawned: an answer that was lost, or a program that was killed, doubles no work.

Never here: what an answer means for a unit. `detect` reads that.
"""

import http.client
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:18789"
SETTLE_SECONDS = 30.0
"""After a restart, children that died with the gateway count for about ten seconds: a refusal teaches nothing then."""
LONGEST_SETTLE_SECONDS = 300.0
"""On a busy machine it takes longer. Until then, a child whose work nobody can confirm is taken for a dead one."""
PATIENCE_SECONDS = 300.0
"""How long a gateway may be away that has a child of ours. A restart takes ten seconds, on a busy machine minutes."""
ANSWER_SECONDS = 60.0
"""No answer takes longer but one that waits: while it starts, the gateway answered after 13 s."""
WAIT_SECONDS = 20
"""How long one request waits for the end of a child. The gateway accepts up to 60."""
CANCEL_SECONDS = 6.0
"""For cancelling a child when this program is stopped: less than the grace that supervisors give."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
LONGEST_LABEL = 400
OVER = frozenset({"completed", "failed", "cancelled", "timed_out", "timeout", "lost"})
"""What ended: any other word is one for a child that waits or works."""
EXIT_CODES = {"ok": 0, "timeout": 2}
STARTING = "unavailable during gateway startup"
INTERRUPTED = re.compile(r"interrupted by (?:a )?gateway restart|lost active execution context|run orphaned", re.I)
"""What OpenClaw says of children that died with the gateway."""
Json = dict[str, Any]


class GatewayDown(Exception):
    """Nobody answered, or the gateway cannot work now."""


class SpawnRefused(Exception):
    """The gateway refused, and asking again does not help now."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class ToolGateway:
    """The tools of an OpenClaw gateway, called for one parent session."""

    def __init__(self, url: str, token: str, parent: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._parent = parent

    def invoke(self, tool: str, timeout: float = ANSWER_SECONDS, **args: object) -> Json:
        """Return the details of a tool's result. Raise `GatewayDown` or `SpawnRefused` if it has none."""
        body = {"tool": tool, "args": args, "sessionKey": self._parent}
        status, answer = self._request("POST", "/tools/invoke", body, timeout)
        error = _text(answer, "error", "message") or _text(answer, "error") or f"HTTP {status}"
        if status in (408, 429) or status >= 500:
            raise GatewayDown(f"the OpenClaw gateway at {self.url} answered {status}: {error}")
        if status == 401:
            fix = "set OPENCLAW_GATEWAY_TOKEN"
            raise SpawnRefused(f"the OpenClaw gateway at {self.url} refused the token ({error}): {fix}", "auth")
        if status in (403, 404):
            where = "gateway.tools.allow" if tool == "sessions_spawn" else "tools.alsoAllow"
            fix = f'add "{tool}" to {where} in its openclaw.json'
            raise SpawnRefused(f"the OpenClaw gateway does not offer {tool} ({error}): {fix}", "auth")
        details = answer.get("result")
        details = details.get("details") if isinstance(details, dict) else None
        if status != 200 or not isinstance(details, dict):
            raise SpawnRefused(f"the OpenClaw gateway did not understand {tool}: {error}", "exception")
        return details

    def uptime(self) -> float:
        """Return the seconds since the gateway started. Raise `GatewayDown` if it is not ready."""
        status, answer = self._request("GET", "/readyz", None, ANSWER_SECONDS)
        if status != 200 or answer.get("ready") is False:
            raise GatewayDown(f"the OpenClaw gateway at {self.url} is not ready")
        uptime = answer.get("uptimeMs")
        return uptime / 1000 if isinstance(uptime, int | float) else float("inf")

    def _request(self, method: str, path: str, body: Json | None, timeout: float) -> tuple[int, Json]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, parts.path + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise GatewayDown(f"cannot connect to the OpenClaw gateway at {self.url}: {_reason(error)}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}


class Child:
    """One sub-agent: spawned or found, followed to its end, cancelled.

    Its label names the unit and the attempt. By it the child is found again.
    """

    def __init__(self, gateway: ToolGateway, task: str, options: Json, *, unit: str, attempt: str) -> None:
        self._gateway = gateway
        self._task = task
        self._options = options
        self._unit = f"paceline {unit} "
        self._label = f"{self._unit}{attempt}"[-LONGEST_LABEL:]
        self._began_at = time.monotonic()
        self._task_id: str | None = None
        self._may_exist = False

    def run(self) -> Json:
        """Run it to its end, and return the answer."""
        task = self._begin()
        self._task_id = str(task.get("taskId"))
        return self._answer(self._follow(task))

    def cancel(self) -> None:
        """End the child, if there may be one. Without an answer in time it stays, and the next attempt finds it."""
        if not self._may_exist:
            return
        try:
            if self._task_id is None:
                listed = self._gateway.invoke("subagents", CANCEL_SECONDS / 2, action="list")
                found = self._find(listed)
                self._task_id = str(found.get("taskId")) if found is not None else None
            if self._task_id is not None:
                self._gateway.invoke("subagents", CANCEL_SECONDS / 2, action="cancel", taskId=self._task_id)
        except (GatewayDown, SpawnRefused) as error:
            note(f"the child could not be cancelled: {error}")

    def _find(self, listed: Json) -> Json | None:
        """Return the task of this attempt, whatever became of it, or that of an earlier one which is still at work."""
        for task in _rows(listed, "tasks"):
            if task.get("label") == self._label:
                return task
        labels = {run.get("label") for run in _rows(listed, "active") if self._is_same_work(run)}
        return next((task for task in _rows(listed, "tasks") if task.get("label") in labels), None)

    def _is_same_work(self, run: Json) -> bool:
        """Return whether a running child was given the same task for the same unit. Long tasks are listed cut."""
        listed = " ".join(str(run.get("task", "")).split()).rstrip("…").removesuffix("...").rstrip()
        is_ours = str(run.get("label", "")).startswith(self._unit)
        return is_ours and bool(listed) and " ".join(self._task.split()).startswith(listed)

    def _begin(self) -> Json:
        """Return the task of the child. Before each spawning, a child that is there already is looked up."""
        for _ in self._tries():
            try:
                found = self._find(self._gateway.invoke("subagents", action="list"))
                if found is not None:
                    note(f"found the child {found.get('label')!r}: {found.get('status')}")
                    self._may_exist = True
                    return found
                if self._spawn() == "accepted":
                    note("accepted; it may wait in the lane of the gateway")
            except GatewayDown as error:
                if not self._may_exist:
                    raise
                note(str(error))
        raise GatewayDown(f"the OpenClaw gateway at {self._gateway.url} accepted no child in time")

    def _spawn(self) -> str:
        """Spawn the child. Raise `SpawnRefused` if the gateway refuses, unless its count may still be wrong."""
        self._may_exist = True  # from here on, whatever comes back
        answer = self._gateway.invoke(
            "sessions_spawn", task=self._task, label=self._label, expectsCompletionMessage=False, **self._options
        )
        status, error = str(answer.get("status")), str(answer.get("error", ""))
        if status == "accepted":
            return status
        if STARTING in error:
            return "starting"
        if status == "forbidden" and self._may_count_the_dead():
            note(f"refused while the gateway has just started, which teaches nothing: {error}")
            return "starting"
        self._may_exist = False
        raise SpawnRefused(error or f"sessions_spawn answered {status!r}", status)

    def _may_count_the_dead(self) -> bool:
        uptime = self._gateway.uptime()
        if uptime < SETTLE_SECONDS or uptime > LONGEST_SETTLE_SECONDS:
            return uptime < SETTLE_SECONDS
        active = _rows(self._gateway.invoke("subagents", action="list"), "active")
        return any(_text(run, "execution", "state") == "unknown" for run in active)

    def _tries(self) -> Iterator[float]:
        pause, waited = FIRST_PAUSE, 0.0
        while waited <= PATIENCE_SECONDS:
            yield waited
            time.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE)

    def _follow(self, task: Json) -> Json:
        tries, seen = self._tries(), None
        while str(task.get("status")) not in OVER:
            at_work = task.get("execution")
            if at_work != seen:
                seen = at_work
                note(f"{task.get('status')}: {json.dumps(at_work)}")  # a child that does nothing is silent: a stall
            try:
                waited = self._wait()
            except GatewayDown as error:
                note(str(error))
                if next(tries, None) is None:
                    raise
                continue
            tries = self._tries()
            if waited.get("reason") == "attention":
                raise SpawnRefused(
                    "the child waits for an approval that nobody can give; allow the tool in OpenClaw", "denied"
                )
            if waited.get("reason") == "unavailable":
                return {**task, "status": "lost", "error": "the gateway does not know the child any more"}
            task = next(iter(_rows(waited, "tasks")), task)
        return task

    def _wait(self) -> Json:
        """Ask for news of the child. The answer takes as long as it has none."""
        timeout = ANSWER_SECONDS + WAIT_SECONDS
        ids = [self._task_id]
        return self._gateway.invoke("subagents", timeout, action="wait", taskIds=ids, timeoutSeconds=WAIT_SECONDS)

    def _answer(self, task: Json) -> Json:
        """Return the answer about a child that has ended, in the form of `openclaw agent exec --json`."""
        run = self._listed_run(task)
        status, error = str(task.get("status")), str(task.get("error", ""))
        if status == "completed":
            said = self._last_words(run) or str(task.get("progressSummary", ""))
            return _envelope("ok", run, final=said)
        if status in ("timed_out", "timeout"):
            return _envelope("timeout", run, error=(error or "the child took longer than its time", "timeout"))
        if status == "lost" or (status == "failed" and self._was_interrupted(error)):
            return _envelope("error", run, error=(error or "the child is lost", "interrupted"))
        return _envelope("error", run, error=(error or f"the child is {status}", status))

    def _was_interrupted(self, error: str) -> bool:
        """Return whether the gateway died meanwhile, and the child with it: the work itself did not fail."""
        if INTERRUPTED.search(error):
            return True
        try:
            return self._gateway.uptime() < time.monotonic() - self._began_at
        except GatewayDown:
            return True

    def _listed_run(self, task: Json) -> Json:
        try:
            listed = self._gateway.invoke("subagents", action="list")
        except (GatewayDown, SpawnRefused) as failure:
            note(f"the tokens of the child are unknown: {failure}")
            return {}
        runs = (*_rows(listed, "active"), *_rows(listed, "recent"))
        return next((run for run in runs if run.get("label") == task.get("label")), {})

    def _last_words(self, run: Json) -> str:
        """Return what the child said last in full; the list of children cuts it."""
        if not run.get("sessionKey"):
            return ""
        try:
            history = self._gateway.invoke("sessions_history", sessionKey=run["sessionKey"])
        except (GatewayDown, SpawnRefused) as failure:
            note(f"the end of the answer may be missing: {failure}")
            return ""
        said = [message for message in _rows(history, "messages") if message.get("role") == "assistant"]
        content = said[-1].get("content") if said else ""
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""


# -- values ----------------------------------------------------------------------------------------------------


def _envelope(status: str, run: Json, final: str = "", error: tuple[str, str] | None = None) -> Json:
    provider, _, model = str(run.get("model", "")).partition("/")
    envelope: Json = {
        "ok": status == "ok",
        "status": status,
        "final": final,
        "model": model or None,
        "provider": provider or None,
        "sessionId": str(run.get("sessionKey", "")),
    }
    if isinstance(run.get("totalTokens"), int):
        envelope["usage"] = {"total": run["totalTokens"]}
    if error is not None:
        envelope["error"] = {"message": error[0], "kind": error[1]}
    return envelope


def _rows(answer: Json, name: str) -> list[Json]:
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(answer: Json, *path: str) -> str | None:
    value: object = answer
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError | socket.timeout):
        return "timed out"
    return str(error) or type(error).__name__


def note(text: str) -> None:
    """Print a line about the child for the log of the session."""
    print(f"[paceline/openclaw] {text}", file=sys.stderr, flush=True)


# -- the program -----------------------------------------------------------------------------------------------


def options_of(arguments: list[str]) -> Json:
    """Return the options of `sessions_spawn` that the command line names. Raise `SpawnRefused` for any other."""
    names = {"--model": "model", "--thinking": "thinking", "--agent-id": "agentId"}
    options: Json = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in names and name != "--run-timeout":
            known = ", ".join((*names, "--run-timeout"))
            raise SpawnRefused(f"sub-agents of OpenClaw have no option {argument!r}; there are {known}", "usage")
        value = value if equals else next(rest, "")
        if name == "--run-timeout":
            if not value.isdecimal():
                raise SpawnRefused(f"--run-timeout needs whole seconds, not {value!r}", "usage")
            options["runTimeoutSeconds"] = int(value)
        else:
            options[names[name]] = value
    return options


def gateway_of(environ: Mapping[str, str]) -> ToolGateway:
    """Return the gateway that the environment names."""
    agent = environ.get("OPENCLAW_GATEWAY_AGENT") or "main"
    parent = environ.get("OPENCLAW_GATEWAY_PARENT") or f"agent:{agent}:paceline"
    token = environ.get("OPENCLAW_GATEWAY_TOKEN") or environ.get("OPENCLAW_GATEWAY_PASSWORD") or ""
    return ToolGateway(environ.get("OPENCLAW_GATEWAY_URL") or DEFAULT_URL, token, parent)


def child_of(environ: Mapping[str, str], arguments: list[str], task: str) -> Child:
    """Return the child that the environment, the arguments and the input describe."""
    gateway = gateway_of(environ)
    if not task.strip():
        raise SpawnRefused("there is no task on standard input", "usage")
    options = {"cwd": os.getcwd(), **options_of(arguments)}
    unit, attempt = environ.get("PACELINE_UNIT", ""), environ.get("PACELINE_ATTEMPT") or str(os.getpid())
    return Child(gateway, task, options, unit=unit, attempt=attempt)


def _stop(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the second must not interrupt the cancelling
    raise SystemExit(128 + number)  # no `Exception`, so that nothing on the way takes it for a failure


def main(arguments: list[str]) -> int:
    """Run one sub-agent. Return the exit code of `openclaw agent exec`: 0, 1, or 2 for a time-out."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    child = None
    try:
        child = child_of(os.environ, arguments, sys.stdin.read())
        answer = child.run()
    except GatewayDown as down:
        answer = _envelope("error", {}, error=(str(down), "unreachable"))
    except SpawnRefused as refusal:
        if refusal.kind == "denied" and child is not None:
            child.cancel()
        answer = _envelope("error", {}, error=(str(refusal), refusal.kind))
    except SystemExit:
        if child is not None:
            child.cancel()
        raise
    print(json.dumps(answer), flush=True)
    return EXIT_CODES.get(str(answer["status"]), 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
