"""`paceline up` as a process of its own, asked over HTTP."""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
from tests.golden.command import Home
from tests.golden.normal import normal, normal_text
from tests.warm_process import WarmProcess

PATIENCE_SECONDS = 60.0


class Daemon:
    """A daemon that serves, and the requests that were put to it with their answers."""

    def __init__(self, home: Home, client: httpx.Client) -> None:
        self.home = home
        self.client = client
        self.answers: list[dict[str, Any]] = []

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Put a request, and record its status and JSON."""
        answer = self.send(method, path, body, **options)
        found = answer.json() if "json" in answer.headers.get("content-type", "") else None
        request = normal_text(f"{method} {path}", self.home.folder)
        asked = {"request": request} if body is None else {"request": request, "body": normal(body, self.home.folder)}
        self.answers.append({**asked, "status": answer.status_code, "json": normal(found, self.home.folder)})
        return found

    def send(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return self.client.request(method, path, **options)

    def wait_for(self, event: str, unit: str) -> None:
        """Return once the event of the unit is stored."""
        with self.client.stream("GET", "/v1/events", params={"after": 0, "unit": unit, "name": event}) as stream:
            next(line for line in stream.iter_lines() if line.startswith("data"))


@contextlib.contextmanager
def daemon_in(home: Home) -> Iterator[Daemon]:
    """Start the daemon on a free port, and end it."""
    process = WarmProcess("up", "--port", "0", "--json", cwd=home.folder, env=home.environ)
    impatience = threading.Timer(2 * PATIENCE_SECONDS, process.kill)  # one that hangs fails its test, not the suite
    impatience.start()
    try:
        assert process.stdout is not None
        base, _, token = json.loads(process.stdout.readline())["url"].partition("/?token=")
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            yield Daemon(home, client)
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, complaints) == (0, "")
    finally:
        impatience.cancel()
        process.kill()
        process.communicate()
