"""A small campaign of real processes whose engine is killed at a chosen stored transition. Run in a process of its own.

    python -m tests.engine.crash_process FOLDER DISASTER FIRST LAST

For each transition from FIRST to LAST, before it is stored and after: a first engine is killed there (and with
DISASTER `supervisors` or `reboot`, all that it had started), with `engine` a second one too; the next goes on.
One line of JSON tells of each what became of the units. A process that forks needs no new interpreter each time.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from paceline.agents import load_agent
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.executors.proc_table import all_processes, contents
from paceline.executors.process import MARK_VARIABLE, ProcessExecutor
from paceline.store import Campaign, SqliteStore, UnitSpec

UNITS = 3
KILLED_ENGINES = {"engine": 2, "supervisors": 1, "reboot": 1}
WRITES = frozenset(
    {
        "claim_units",
        "record_outcomes",
        "save_progress",
        "renew_units",
        "wake_units",
        "hasten_units",
        "move_units",
        "append_events",
        "trim_events",
        "save_state",
        "lead",
        "resign",
    }
)


class Deadly:
    """A store whose n-th write is the last thing this process does, or the thing it was about to do."""

    def __init__(self, store: object, nth: int, *, after: bool) -> None:
        self._store = store
        self._left = nth
        self._after = after

    def __getattr__(self, name: str) -> object:
        verb = getattr(self._store, name)
        return self._deadly(verb) if name in WRITES else verb

    def _deadly(self, verb: Callable[..., object]) -> Callable[..., object]:
        def write(*args: object, **kwargs: object) -> object:
            self._left -= 1
            if self._left == 0 and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = verb(*args, **kwargs)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return write


class Case:
    """One home, and what happens in it."""

    def __init__(self, folder: Path, disaster: str, nth: int, *, after: bool) -> None:
        self.folder = folder
        self.disaster = disaster
        self.nth = nth
        self.after = after
        self.spool = folder / "spool"
        self.log = folder / "log"
        self.runs_when_done: dict[str, int] = {}
        folder.mkdir()
        self.log.touch()
        store = SqliteStore(folder / "paceline.db")
        campaign = Campaign(name="night", command=("sh", "-c", "echo {id} >> log; sleep 0.03"))
        specs = [UnitSpec(id=f"u{n}", cwd=str(folder)) for n in range(UNITS)]
        store.add_campaign(campaign, specs, update=False, now=0.0)
        store.close()

    def run(self) -> bool:
        """Whether any engine was killed."""
        killed = KILLED_ENGINES[self.disaster]
        was_killed = [self._engine_dies(number) for number in range(killed)]
        self._run_engine(killed, deadly=False)
        return any(was_killed)

    def _engine_dies(self, number: int) -> bool:
        ended = self._run_engine(number, deadly=True)
        self._note_done()
        if self.disaster != "engine":
            self._kill_all(supervisors_only=self.disaster == "supervisors")
        if self.disaster == "reboot":
            self._change_boot_id()
        return ended != 0

    def _run_engine(self, number: int, *, deadly: bool) -> int:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(self._run(number, deadly=deadly))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) in ((0, -signal.SIGKILL) if deadly else (0,))
        return status

    async def _run(self, number: int, *, deadly: bool) -> None:
        signal.alarm(30)
        real = SqliteStore(self.folder / "paceline.db")
        for before in range(number):
            real.resign(f"engine{before}")  # the lock of a home shows that they are gone
        store = Deadly(real, self.nth, after=self.after) if deadly else real
        engine = Engine(
            EngineSettings(governor=GovernorSettings(limits={"sessions": 2}), heartbeat=0.2),
            store=store,  # type: ignore[arg-type]
            executor=ProcessExecutor(str(self.spool)),
            clock=SystemClock(),
            agents=load_agent,
            environ={"PATH": os.environ["PATH"]},
            owner=f"engine{number}",
        )
        await engine.run(until_idle=True)
        real.close()

    # -- disasters ----------------------------------------------------------------------------------

    def _kill_all(self, *, supervisors_only: bool) -> None:
        for pid in self.processes():
            is_supervisor = b"folder=" in _read(pid, "cmdline")
            if is_supervisor or not supervisors_only:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if not supervisors_only:
            while self.processes():
                os.sched_yield()

    def _change_boot_id(self) -> None:
        """What stands in the spool was written before the machine was started again."""
        for path in self.spool.glob("*/status.json"):
            status = json.loads(path.read_text())
            path.write_text(json.dumps(status | {"boot_id": "00000000-0000-0000-0000-000000000000"}))

    def processes(self) -> list[int]:
        """All that run with a mark of this spool: supervisors, agents and their children."""
        mark = f"{MARK_VARIABLE}={self.spool}/".encode()
        return [pid for pid, fields in all_processes() if fields[0] != b"Z" and mark in _read(pid, "environ")]

    # -- what became of it --------------------------------------------------------------------------

    def _note_done(self) -> None:
        """How often each unit that is stored as done had run by then."""
        store = SqliteStore(self.folder / "paceline.db")
        done = [unit.spec.id for unit in store.units(state="done").units]
        store.close()
        self.runs_when_done = {name: self._runs()[name] for name in done} | self.runs_when_done

    def _runs(self) -> Counter[str]:
        return Counter(self.log.read_text().split())

    def result(self) -> dict[str, object]:
        store = SqliteStore(self.folder / "paceline.db")
        units = store.units().units
        events = Counter((each.event.name, each.event.unit) for each in store.events(limit=100_000))
        store.close()
        runs = self._runs()
        return {
            "at": f"{'after' if self.after else 'before'} {self.nth}",
            "states": [unit.state for unit in units],
            "attempts": [unit.counters.failures for unit in units],
            "tries": [unit.counters.attempts for unit in units],
            "losses": [unit.counters.losses for unit in units],
            "runs": [runs[unit.spec.id] for unit in units],
            "starts": [events["unit.started", unit.id] for unit in units],
            "ends": [events["unit.done", unit.id] for unit in units],
            "runs_after_done": sum(runs[name] - then for name, then in self.runs_when_done.items()),
            "left": len(self.processes()),
            "unarchived": len([path for path in self.spool.iterdir() if path.name != ".settled"]),
        }


def _read(pid: int, name: str) -> bytes:
    try:
        return contents(f"/proc/{pid}/{name}")
    except OSError:
        return b""


def main(folder: Path, disaster: str, first: int, last: int) -> None:
    for nth in range(first, last + 1):
        for after in (False, True):
            case = Case(folder / f"{nth}-{after}", disaster, nth, after=after)
            was_killed = case.run()
            print(json.dumps({"was_killed": was_killed} | case.result()), flush=True)
            if not was_killed:
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
