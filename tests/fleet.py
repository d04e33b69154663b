"""Several real `paceline up` processes on one PostgreSQL database, each with a home of its own or sharing one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from tests.cli.shell import accept_interrupts
from tests.slot_engines import end_slot_engines
from tests.warm_process import WarmProcess

PATIENCE_SECONDS = 90.0
POLL_SECONDS = 0.05
ANSWER_SECONDS = 5.0
"""How long a member may take to say its state: a lock that it waits for costs it 2 s. A test that waits asks again."""
LOG_LINES = 20
"""Lines of each log that a failed wait shows."""
PROGRAM = ("paceline",)
ROOT = Path(__file__).parents[1]
Process = WarmProcess | subprocess.Popen[str]


class Member:
    """One process, and a client for its API."""

    def __init__(self, process: Process, address: str, env: dict[str, str]) -> None:
        url, _, token = address.partition("/?token=")
        self.process = process
        self.env = env
        self.url = url
        self.token = token
        self.http = httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE_SECONDS, trust_env=False
        )

    @property
    def state(self) -> str:
        """What the process says of itself: `leading` or `standby`."""
        try:
            status = self.http.get("/v1/status", timeout=ANSWER_SECONDS).json()
        except httpx.TimeoutException:
            return "no answer"
        return str(status["engine"]["state"] if "engine" in status else status["error"])

    def report(self) -> str:
        """What the process says of itself, and the end of its log."""
        try:
            state = self.state if (code := self.process.poll()) is None else f"ended with code {code}"
        except httpx.TransportError as error:
            state = f"no answer ({type(error).__name__})"
        log = Path(self.env["PACELINE_HOME"], "paceline.log")
        lines = log.read_text("utf-8").splitlines()[-LOG_LINES:] if log.exists() else []
        return "\n  ".join([f"{self.url} ({self.env['PACELINE_HOME']}): {state}", *lines])

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.http.get("/v1/status").json()
        return status

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Fleet:
    """The processes of one test in one folder."""

    def __init__(self, folder: Path, store_url: str) -> None:
        self.folder = folder
        self.store_url = store_url
        self.members: list[Member] = []
        self._started: list[Process] = []

    def env(self, home: str = "home", store_url: str | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TZ": "UTC",
            "COLUMNS": "200",
            "PACELINE_HOME": str(self.folder / home),
            "PACELINE_STORE_URL": store_url or self.store_url,
        }

    def up(
        self,
        home: str,
        *,
        store_url: str | None = None,
        host: str | None = None,
        program: Sequence[str] = PROGRAM,
        options: Sequence[str] = (),
        **env: str,
    ) -> Member:
        """Start another member, as on a machine with this name, and wait until it serves."""
        env = {**self.env(home, store_url), **env}
        process = self.start("up", "--port", "0", "--json", *options, env=env, host=host, program=program)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        member = Member(process, json.loads(line)["url"], env)
        self.members.append(member)
        return member

    def up_machine(self, name: str) -> Member:
        """Start another member on a machine of its own, which the others reach over the network."""
        return self.up(name, host=name, options=("--host", "0.0.0.0", "--insecure"))

    def start(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        host: str | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> Process:
        env = {**(env or self.env()), "PYTHONPATH": str(ROOT)}
        process: Process
        if host is None and program == PROGRAM:
            process = WarmProcess(*argv, cwd=self.folder, env=env)
        else:
            named = [] if host is None else ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
            process = subprocess.Popen(
                [*named, sys.executable, "-m", *program, *argv],
                cwd=self.folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=accept_interrupts,
            )
        self._started.append(process)
        return process

    def run(self, *argv: str, env: dict[str, str] | None = None, code: int = 0) -> str:
        """Run a command, and return what it prints."""
        process = self.start(*argv, env=env)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == code, out + err
        return out

    def plan(self, command: str, units: int, *, head: str = "") -> str:
        """Write a plan whose units run a shell script."""
        lines = [f'[campaign]\nname = "docs"\ncommand = {json.dumps(["sh", "-c", command])}\n{head}']
        lines += [f'[[unit]]\nid = "u{number}"' for number in range(units)]
        path = self.folder / "docs.toml"
        path.write_text("\n".join(lines), "utf-8")
        return str(path)

    def leader(self) -> Member | None:
        """The member that says that it leads, if one does."""
        for member in self.members:
            if member.process.poll() is None:
                with contextlib.suppress(httpx.TransportError):
                    if member.state == "leading":
                        return member
        return None

    def wait_for_leader(self, *, other_than: Member | None = None) -> Member:
        """Wait until a member leads that is not the given one, which is not asked."""
        others = Fleet(self.folder, self.store_url)
        others.members = [member for member in self.members if member is not other_than]
        found = until(others.leader)
        assert isinstance(found, Member)
        return found

    def lines(self, name: str) -> list[str]:
        """The lines that the units have appended to a file."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()
        for member in self.members:
            member.http.close()
        for status in self.folder.glob("*/spool/*/status.json"):
            pid = json.loads(status.read_text()).get("supervisor_pid")
            with contextlib.suppress(OSError, TypeError):
                if str(self.folder) in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGTERM)


_open: list[Fleet] = []
"""The fleets of the running test, for the message of a wait that fails."""


def until(check: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> Any:
    """Wait for a value that counts as true, and return it."""
    give_up_at = time.monotonic() + patience
    while not (found := check()):
        if time.monotonic() >= give_up_at:
            reports = [member.report() for fleet in _open for member in fleet.members]
            raise AssertionError("\n".join([f"still not so after {patience:g} s", *reports]))
        time.sleep(POLL_SECONDS)
    return found


@contextlib.contextmanager
def fleet_in(folder: Path, store_url: str) -> Iterator[Fleet]:
    """A fleet whose processes end with the block."""
    fleet = Fleet(folder, store_url)
    _open.append(fleet)
    try:
        yield fleet
    finally:
        _open.remove(fleet)
        fleet.close()
        end_slot_engines(folder)
