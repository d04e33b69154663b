"""`end_at_turn` with a real process that prints what Claude Code prints, over a store on disk and two engines."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from paceline.agents import load_agent
from paceline.clock import SystemClock
from paceline.core import GovernorSettings
from paceline.core.unit_lifecycle import Counters
from paceline.engine import commands
from paceline.engine.engine import Engine
from paceline.engine.settings import EngineSettings
from paceline.executors.process import ProcessExecutor
from paceline.store import Campaign, SqliteStore, Unit, UnitSpec

PATIENCE_SECONDS = 60.0


def line(**event: object) -> str:
    return f"echo '{json.dumps({**event, 'session_id': 'talk'})}'"


INIT = line(type="system", subtype="init", apiKeySource="none", model="opus")
CALL = line(type="assistant", message={"id": "m1", "content": [{"type": "tool_use", "id": "t1", "name": "Bash"}]})
RESULT = line(type="user", message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]})
DONE = line(type="result", subtype="success", is_error=False, result="Done.")
AGENT = f"""#!/bin/sh
{INIT}
case "$*" in *"--resume talk"*) {DONE}; exit 0;; esac
{CALL}
touch running
while [ ! -e go ]; do sleep 0.05; done
{RESULT}
touch told
exec sleep 1000
"""


class Home:
    """A store and a spool, with one engine at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        program = folder / "bin" / "claude"
        program.write_text(AGENT)
        program.chmod(0o755)
        self.store = SqliteStore(folder / "paceline.db")
        campaign = Campaign(name="night", agent="claude", model="opus", max_attempts=1)
        specs = [UnitSpec(id="u0", prompt="do it", cwd=str(folder))]
        self.store.add_campaign(campaign, specs, update=False, now=SystemClock().now())
        self.engines = 0
        self.executor = ProcessExecutor(str(folder / "spool"))
        self.start()

    def start(self) -> None:
        """Start the next engine, as after a kill of the one before, which stores nothing more."""
        self.executor.close()
        if self.engines:
            self.store.resign(f"engine{self.engines}")
        self.engines += 1
        self.executor = ProcessExecutor(str(self.folder / "spool"))
        self.engine = Engine(
            EngineSettings(governor=GovernorSettings(limits={"sessions": 2}), home=str(self.folder)),
            store=self.store,
            executor=self.executor,
            clock=SystemClock(),
            agents=load_agent,
            environ={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)},
            owner=f"engine{self.engines}",
        )
        self.engine.start()

    async def run_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                list(self.engine.make_pass())
                await self.executor.wait_ended(0.05)

    @property
    def unit(self) -> Unit:
        unit = self.store.unit("night/u0")
        assert unit is not None
        return unit


async def test_a_real_process_is_ended_once_its_tool_is_done_although_the_engine_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    try:
        await home.run_until((tmp_path / "running").exists)
        commands.end_at_turn(home.store, home.unit, reason="make room", now=SystemClock().now())
        list(home.engine.make_pass())
        stored = home.unit.result.end_request
        home.start()
        list(home.engine.make_pass())
        assert (home.unit.state, stored is not None, (tmp_path / "told").exists()) == ("running", True, False)

        (tmp_path / "go").touch()
        await home.run_until(lambda: home.unit.state == "done")
        assert (home.unit.counters, home.unit.conversation_id) == (Counters(attempts=2), "talk")
        names = [each.event.name for each in home.store.events() if each.event.unit == "night/u0"]
        assert names == ["unit.started", "unit.ending", "unit.requeued", "unit.started", "unit.done"]
    finally:
        for session in home.engine.live_sessions():
            home.executor.kill(session.handle)
        home.engine.close()
        home.executor.close()
        home.store.close()
