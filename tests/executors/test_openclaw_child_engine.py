"""The engine over sub-agents of OpenClaw: caps, totals and outages in virtual time, and a kill with the double."""

import json
import os
import subprocess
import sys
from pathlib import Path

from paceline.core.values.status import ScopeStatus
from paceline.executors import Launch
from paceline.simulation.executor import Run
from paceline.testing.engine_harness import EngineHarness
from paceline.testing.openclaw import FakeOpenClaw

SCOPE = "openclaw-gateway/default"
SECONDS = 60.0
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


def test_a_killed_engine_finds_its_sub_agents_and_doubles_none(tmp_path: Path) -> None:
    units = "".join(f'[[unit]]\nid = "{name}"\nprompt = "{name}"\n' for name in "abc")
    (tmp_path / "plan.toml").write_text(f'[campaign]\nname = "docs"\nexecutor = "openclaw"\nmodel = "slow/m1"\n{units}')
    with FakeOpenClaw(max_children=5) as claw:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PACELINE_HOME": str(tmp_path / "home")}
        environ |= {"OPENCLAW_GATEWAY_URL": claw.url, "OPENCLAW_GATEWAY_TOKEN": claw.token}
        command = [sys.executable, "-m", "paceline", "run", str(tmp_path / "plan.toml")]
        quiet = subprocess.DEVNULL
        killed = subprocess.Popen(command, env=environ, stdout=quiet, stderr=quiet)
        claw.wait_for(3, SECONDS)
        killed.kill()
        killed.wait()

        following = subprocess.Popen(command, env=environ, stdout=quiet, stderr=quiet)
        for name in "abc":
            claw.finish(f"docs/{name}")

        assert (following.wait(SECONDS), claw.spawns) == (0, 3)
        assert {child.cwd for child in claw.children} == {str(tmp_path)}
