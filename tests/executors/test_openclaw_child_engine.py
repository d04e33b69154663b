"""The engine over sub-agents of OpenClaw: caps, totals and outages in virtual time, and a kill with the double."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.agents.agent_cli import IS_OPENCLAW_INSTALLED
from tests.executors.conftest import until
from tests.fake_openclaw import FakeOpenClaw
from tests.openclaw_gateway import RealOpenClaw, children_of

from paceline.core.values.status import ScopeStatus
from paceline.executors.interface import Launch
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import EngineHarness

SCOPE = "openclaw-gateway/default"
PARENT = "agent:main:paceline"
SECONDS = 60.0
REAL_SECONDS = 600.0
CAP = (
    "sessions_spawn has reached max active children for this session "
    "({used}/{limit}; agents.defaults.subagents.maxChildrenPerAgent)."
)
TOTAL = "sessions_spawn reached tools.swarm.maxTotalPerGroup (200/200)."
DOWN = "cannot connect to the OpenClaw gateway at http://127.0.0.1:18789: connection refused"


def answer(*, error: str | None = None, kind: str = "forbidden") -> str:
    """Return what the program prints about a child that has ended, or was never accepted."""
    envelope = {"ok": error is None, "status": "error" if error else "ok", "final": "done", "sessionId": ""}
    return json.dumps(envelope | ({"error": {"message": error, "kind": kind}} if error else {})) + "\n"


class ScriptedGateway:
    """Accepts so many children at once, each for ten minutes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.harness: EngineHarness | None = None
        self._until: list[float] = []

    def run(self, _: Launch) -> Run:
        assert self.harness is not None
        now = self.harness.clock.now()
        self._until = [end for end in self._until if end > now]
        used = len(self._until)
        if used >= self.limit:
            return Run(stdout=answer(error=CAP.format(used=used, limit=self.limit)), exit_code=1, seconds=1.0)
        self._until.append(now + 600.0)
        return Run(later=((600.0, answer()),), seconds=600.0)


def sub_agents(gateway: ScriptedGateway, units: int, **options: object) -> EngineHarness:
    harness = EngineHarness(gateway.run, **{"pool": 20, "accounts": ()} | options)  # type: ignore[arg-type]
    gateway.harness = harness
    harness.add("docs", units, agent="openclaw-gateway", command=())
    return harness


def limits(status: ScopeStatus) -> tuple[int | None, int | None, int | None]:
    return status.limit, status.configured, status.platform


async def test_a_cap_of_the_gateway_is_learnt_and_no_attempt_is_charged() -> None:
    gateway = ScriptedGateway(limit=3)
    async with sub_agents(gateway, 8, limits={SCOPE: 6}) as harness:
        await harness.run(120.0)

        (first, *_) = harness.events("scope.platform_limit")
        assert (first.scope, first.fields) == (SCOPE, {"detected_limit": 3, "effective_cap": 3, "previous_cap": 6})
        assert limits(harness.scope(SCOPE)) == (3, 6, 3)
        await harness.run(3 * 3600.0)
        assert set(harness.states().values()) == {"done"}
        assert harness.failures() == 0


async def test_a_raised_cap_of_the_gateway_is_found_again_by_probing() -> None:
    gateway = ScriptedGateway(limit=2)
    async with sub_agents(gateway, 60, limits={SCOPE: 6}) as harness:
        await harness.run(120.0)
        assert limits(harness.scope(SCOPE)) == (2, 6, 2)

        gateway.limit = 6
        await harness.run(2 * 3600.0)

        assert harness.scope(SCOPE).limit == 6
        assert harness.failures() == 0


async def test_a_total_that_is_used_up_holds_the_account_and_says_what_to_do() -> None:
    spent = Run(stdout=answer(error=TOTAL), exit_code=1, seconds=1.0)
    harness = EngineHarness(lambda _: spent, pool=20, limits={SCOPE: 6}, accounts=())
    harness.add("docs", 3, agent="openclaw-gateway", command=())
    async with harness:
        await harness.run(24 * 3600.0)

        (held,) = harness.events("account.held")
        assert held.scope == SCOPE
        assert str(held.fields["detail"]).endswith(
            "raise that total or begin a new session or group, then lift the hold"
        )
        assert limits(harness.scope(SCOPE)) == (6, 6, None)
        assert (len(harness.executor.started), harness.failures()) == (3, 0)


async def test_an_outage_of_the_gateway_charges_nothing_and_ends_by_itself() -> None:
    until = EngineHarness().clock.now() + 2 * 3600.0

    def run(_: Launch) -> Run:
        if harness.clock.now() < until:
            return Run(stdout=answer(error=DOWN, kind="unreachable"), exit_code=1, seconds=1.0)
        return Run(stdout=answer(), seconds=60.0)

    harness = EngineHarness(run, pool=20, accounts=())
    harness.add("docs", 5, agent="openclaw-gateway", command=())
    async with harness:
        await harness.run(4 * 3600.0)

        assert set(harness.states().values()) == {"done"}
        assert harness.failures() == 0


# -- real processes ------------------------------------------------------------------------------------------------


class Paceline:
    """`paceline run` over a gateway, as often as a test starts it."""

    def __init__(self, folder: Path, claw: FakeOpenClaw | RealOpenClaw, units: Iterable[str], model: str) -> None:
        self._folder = folder
        listed = "".join(f'[[unit]]\nid = "{unit}"\nprompt = "do {unit}"\n' for unit in units)
        head = f'[campaign]\nname = "docs"\nexecutor = "openclaw"\nmodel = "{model}"\n'
        (folder / "plan.toml").write_text(head + listed)
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PACELINE_HOME": str(folder / "state")}
        self._environ |= {"OPENCLAW_GATEWAY_URL": claw.url, "OPENCLAW_GATEWAY_TOKEN": claw.token, "PACELINE_POOL": "6"}

    def run(self) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        command = self._command("run", "plan.toml")
        return subprocess.Popen(command, cwd=self._folder, env=self._environ, stdout=quiet, stderr=quiet)

    def units(self) -> dict[str, tuple[str, int]]:
        """Return the state and the charged attempts of each unit."""
        command = self._command("units", "docs", "--json")
        printed = subprocess.run(command, cwd=self._folder, env=self._environ, stdout=subprocess.PIPE, check=True)
        return {unit["id"]: (unit["state"], unit["attempts"]) for unit in json.loads(printed.stdout)["units"]}

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "paceline", *arguments]


def test_a_killed_engine_finds_its_sub_agents_and_doubles_none(tmp_path: Path) -> None:
    with FakeOpenClaw(max_children=5) as claw:
        paceline = Paceline(tmp_path, claw, "abc", "slow/m1")
        killed = paceline.run()
        claw.wait_for(3, SECONDS)
        killed.kill()
        killed.wait()

        following = paceline.run()
        for name in "abc":
            claw.finish(f"docs/{name}")

        assert (following.wait(SECONDS), claw.spawns) == (0, 3)
        assert {child.cwd for child in claw.children} == {str(tmp_path)}
        assert paceline.units() == dict.fromkeys(("docs/a", "docs/b", "docs/c"), ("done", 0))


@pytest.mark.openclaw
@pytest.mark.skipif(not IS_OPENCLAW_INSTALLED, reason="OpenClaw is not installed: make openclaw")
def test_over_the_real_gateway_kills_of_both_sides_lose_double_and_charge_nothing(tmp_path: Path) -> None:
    units = [f"u{number}" for number in range(9)]
    (tmp_path / "claw").mkdir()
    with RealOpenClaw(tmp_path / "claw", max_children=3) as claw:
        paceline = Paceline(tmp_path, claw, units, "fake/m1")
        running = paceline.run()
        until(lambda: any(status == "completed" for _, status in children_of(claw.url, PARENT)), REAL_SECONDS)
        claw.kill()
        running.kill()
        running.wait()
        claw.start()

        following = paceline.run()

        assert following.wait(REAL_SECONDS) == 0
        children = children_of(claw.url, PARENT)
        assert paceline.units() == dict.fromkeys([f"docs/{unit}" for unit in units], ("done", 0))
    completed = sorted(label.split()[1] for label, status in children if status == "completed")
    assert completed == sorted(f"docs/{unit}" for unit in units)
    assert {status for _, status in children} <= {"completed", "failed"}
