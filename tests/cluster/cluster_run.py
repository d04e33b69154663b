"""A real `paceline up` whose units run on other machines only, faults in the middle, and what became of the units.

Each session writes down every half second that it lives, and one line at its end. So what ran twice, or at the same
time as another attempt of its unit, is counted whatever the database says.
"""

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.cli.shell import Shell
from tests.cluster.machines import Machine
from tests.fleet import ROOT, until
from tests.warm_process import WarmProcess

UNITS = 60
STEP_UNITS = 6
"""Units that end between two faults."""
PATIENCE_SECONDS = 180.0
"""A lost host's units wait for its lease and a minute more, on a machine that may be busy."""
CAMPAIGN = "work"
SHORT_SESSION = 8
"""Beats of a session that ends within four seconds."""
LONG_SESSION = 30
"""Beats of a session that is longer than the lease of a host in these tests."""
SCRIPT = """\
name=$(echo "$PACELINE_UNIT" | tr / -)
for beat in $(seq BEATS); do date +%s.%N >>"beats/$name~$PACELINE_ATTEMPT"; sleep 0.5; done
echo "$PACELINE_UNIT" >>ends
"""


class Figures(msgspec.Struct, frozen=True):
    """What became of the units of a run."""

    done: int
    lost: int
    """Units that did not end."""
    doubled: int
    """Units whose attempts overlapped."""
    repeated: int
    """Units that ended twice, one after the other: the machine of the first end died before it could report it."""
    charged: int
    """Attempts that were charged."""
    restarts: int
    """Sessions beyond one for each unit."""
    seconds: float

    def line(self, name: str) -> str:
        return (
            f"\n{name}: {self.done} units done, {self.lost} lost, {self.doubled} doubled, "
            f"{self.repeated} repeated, "
            f"{self.charged} attempts charged, {self.restarts} sessions run again, {self.seconds:.0f} s"
        )


class ClusterRun:
    """One campaign, and the daemon that runs it. `paceline.toml` has only the hosts that are given."""

    def __init__(
        self, shell: Shell, settings: str, *, port: int, beats: int = SHORT_SESSION, up: Sequence[str] = ()
    ) -> None:
        self.shell = shell
        self.settings = settings
        self._up = ("--port", str(port), *up)
        self.begun = time.monotonic()
        (shell.folder / "beats").mkdir()
        (shell.folder / "ends").touch()
        local = "[hosts.local]\nmax_sessions = 0\n"
        (shell.folder / "paceline.toml").write_text(f"[pool]\nsessions = 32\n{local}{settings}")
        command = ["sh", "-c", SCRIPT.replace("BEATS", str(beats))]
        lines = [f'[campaign]\nname = "{CAMPAIGN}"\ncommand = {json.dumps(command)}']
        lines += [f'[[unit]]\nid = "u{number}"' for number in range(UNITS)]
        (shell.folder / "plan.toml").write_text("\n".join(lines))
        shell.run("add", "plan.toml")
        self.daemon, self.http = self._start()

    def _start(self) -> tuple[WarmProcess, httpx.Client]:
        daemon = self.shell.start("up", *self._up)
        assert daemon.stdout is not None
        impatience = threading.Timer(PATIENCE_SECONDS, daemon.kill)
        impatience.start()
        line = daemon.stdout.readline()
        impatience.cancel()
        assert line, (daemon.communicate(), self.log)
        address, _, token = line[line.index("http://") :].partition("/?token=")
        headers = {"authorization": f"Bearer {token.split()[0]}"}
        return daemon, httpx.Client(base_url=address, headers=headers, timeout=20.0, trust_env=False)

    # -- faults ---------------------------------------------------------------------------------------------

    def kill_leader(self) -> None:
        """Kill the daemon, and start another, as systemd does."""
        self.http.close()
        self.daemon.kill()
        self.daemon.communicate()
        self.daemon, self.http = self._start()

    def kill_worker(self, machine: Machine, *, awaits_next: bool = True) -> None:
        """Kill the worker. What its sessions do without one is reported by the next one, so wait for that."""
        killed = self.until(lambda: machine.pids("paceline worker"))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        if awaits_next:
            self.until(lambda: set(machine.pids("paceline worker")) - set(killed))

    # -- what goes on ---------------------------------------------------------------------------------------

    def until(self, check: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> Any:
        """Wait for something, with the log of the daemon if it does not happen."""
        try:
            return until(check, patience)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.hosts()}\n{self.units()[:3]}\n{self.log[-4000:]}") from None

    def pass_time(self, seconds: float) -> None:
        begun = time.monotonic()
        self.until(lambda: time.monotonic() - begun >= seconds, seconds + 5)

    def work(self, units: int = STEP_UNITS) -> None:
        """Let so many more units end."""
        wanted = min(len(self.ended) + units, UNITS)
        self.until(lambda: len(self.ended) >= wanted)

    def finish(self) -> None:
        self.until(lambda: all(unit["state"] == "done" for unit in self.units()), 2 * PATIENCE_SECONDS)

    def await_hosts(self, *names: str) -> None:
        self.until(lambda: all(self.hosts().get(name) == "joined" for name in names))

    def await_session(self, host: str) -> None:
        """Wait until a unit runs on the host."""
        self.until(lambda: any((each["host"], each["state"]) == (host, "running") for each in self.units()))

    def units(self, campaign: str = CAMPAIGN) -> list[dict[str, Any]]:
        return list(self.http.get("/v1/units", params={"campaign": campaign, "limit": UNITS}).json()["units"])

    def hosts(self) -> dict[str, str]:
        """Return the presence of each host."""
        return {host["name"]: host["presence"] for host in self.http.get("/v1/hosts").json()["hosts"]}

    @property
    def ended(self) -> list[str]:
        return (self.shell.folder / "ends").read_text().splitlines()

    @property
    def log(self) -> str:
        path = self.shell.home / "paceline.log"
        return path.read_text() if path.exists() else ""

    def figures(self) -> Figures:
        units, ends = self.units(), Counter(self.ended)
        spans: dict[str, list[tuple[float, float]]] = {}
        for file in (self.shell.folder / "beats").iterdir():
            beats = [float(line) for line in file.read_text().split()]
            spans.setdefault(file.name.partition("~")[0], []).append((beats[0], beats[-1]))
        overlapping = {name for name, each in spans.items() if _overlap(sorted(each))}
        twice = {unit.replace("/", "-") for unit, count in ends.items() if count > 1}
        return Figures(
            done=sum(unit["state"] == "done" for unit in units),
            lost=UNITS - len(ends),
            doubled=len(overlapping),
            repeated=len(twice - overlapping),
            charged=sum(unit["attempts"] for unit in units),
            restarts=sum(len(each) for each in spans.values()) - UNITS,
            seconds=time.monotonic() - self.begun,
        )

    def check(self, name: str, *, most_repeated: int = 0) -> None:
        """Let all units end, print the figures, and require that nothing was lost, doubled or charged.

        Where machines die, each may take the end of a session with it that nobody else knows of.
        """
        self.finish()
        found = self.figures()
        print(found.line(name))
        assert (found.done, found.lost, found.doubled, found.charged) == (UNITS, 0, 0, 0)
        assert found.repeated <= most_repeated
        assert "Traceback" not in self.log, self.log


def _overlap(spans: list[tuple[float, float]]) -> bool:
    return any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(spans))


@contextlib.contextmanager
def cluster_run(
    shell: Shell, settings: str, *, port: int, beats: int = SHORT_SESSION, up: Sequence[str] = ()
) -> Iterator[ClusterRun]:
    """Run the campaign. The daemon ends with the block, and the tunnels that it opened."""
    made = ClusterRun(shell, settings, port=port, beats=beats, up=up)
    try:
        yield made
    finally:
        made.http.close()
        made.daemon.kill()
        made.daemon.communicate()
        end_tunnels(shell.folder)


def end_tunnels(folder: Path) -> None:
    """End the ssh clients that a killed leader has left behind."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            line = (process / "cmdline").read_bytes().decode(errors="replace")
            if str(folder) in line and "ssh_config" in line:
                os.kill(int(process.name), signal.SIGKILL)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


PYTHON = str(ROOT / ".venv" / "bin" / "python")
"""The Python with Paceline on every machine: they share its files."""
