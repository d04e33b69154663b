"""What happens in the demo: a fake provider on loopback, two teams of agents, one limiter between them.

Every call is a real HTTP request, every refusal is read from the provider's answer by `paceline.detect`. An agent
does what any program would do: take a slot, call, report what came back, and try again if it was refused.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec

from paceline import Deferred, Limiter, openai_compatible_usage
from paceline.cli.demo.ledger import Agent, Ledger, Team
from paceline.core.signals import Signal
from paceline.detect import Observation, detect
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario, Window

SCOPE = "anthropic/max-1"
KEY = "demo-key"
MODEL = "claude-opus-4-6"
LONGEST_TASK_WORDS = 20
TOO_LONG_SECONDS = 120.0
"""A demo that has not ended by then never will."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the story. Times are seconds."""

    agents_per_team: int = 20
    calls_per_agent: int = 3
    configured: int = 12
    """What the person believes the plan allows."""
    capacity: int = 8
    """What the provider really allows."""
    lag: float = 0.35
    """How long the provider goes on counting a call that has ended."""
    latency: float = 0.1
    words_per_second: float = 22.0
    """How fast answers are written; tasks, and so answers, differ in length."""
    window_requests: int = 72
    window_seconds: float = 27.0
    hiccup_after: int = 30
    """After so many answers the provider is overloaded for once (529)."""
    hiccup_seconds: float = 3.0


class Play:
    """One performance. `ledger`, `limiter` and `provider` are there to be looked at while it runs."""

    def __init__(self, plan: Plan, provider: FakeProvider, limiter: Limiter, ledger: Ledger, client: httpx.AsyncClient):
        self.plan = plan
        self.provider = provider
        self.limiter = limiter
        self.ledger = ledger
        self._client = client
        self._hiccup_due = True

    async def run(self) -> None:
        """Until every call of every agent was served."""
        async with asyncio.timeout(TOO_LONG_SECONDS), asyncio.TaskGroup() as group:
            for pair in zip(*(team.agents for team in self.ledger.teams), strict=True):  # all teams come at once
                for team, agent in zip(self.ledger.teams, pair, strict=True):
                    group.create_task(self._work(team, agent))

    async def _work(self, team: Team, agent: Agent) -> None:
        while agent.state != "done":
            await self._call(team, agent)

    async def _call(self, team: Team, agent: Agent) -> None:
        def queued(deferred: Deferred) -> None:
            agent.ticket = deferred.ticket_id

        self.ledger.asked(agent)
        async with self.limiter.slot(SCOPE, priority=team.priority, on_queued=queued) as slot:
            self.ledger.started(team, agent, slot.waited)
            answer = await self._client.post("/v1/messages", json=task_for(agent))
            signals = read_answer(answer)
            for signal in signals:
                slot.report(signal)
            if answer.is_success:
                self.ledger.served(agent)
            else:
                self.ledger.refused(agent, signals)
        self._maybe_hiccup()

    def _maybe_hiccup(self) -> None:
        if self._hiccup_due and self.ledger.done >= self.plan.hiccup_after:
            self._hiccup_due = False
            self.provider.script("529_retry_after", retry_after=self.plan.hiccup_seconds)


def task_for(agent: Agent) -> dict[str, object]:
    """A request whose answer takes its own time: releases that all come in one moment would be a special case."""
    length = 1 + (7 * agent.number + 5 * agent.done) % LONGEST_TASK_WORDS
    return {"model": MODEL, "messages": [{"role": "user", "content": " ".join("x" * length)}]}


def read_answer(answer: httpx.Response) -> list[Signal]:
    """What an HTTP answer means for whoever calls next."""
    return detect(
        Observation(
            provider="anthropic-api",
            channel="http",
            text=answer.content,
            status=answer.status_code,
            headers=dict(answer.headers),
            seen_at=time.time(),
        )
    )


@asynccontextmanager
async def staged(plan: Plan) -> AsyncIterator[Play]:
    """The provider, the limiter and the agents, ready to start; all is gone afterwards."""
    # `late`: headers tell the reset in whole seconds, so a window that opened on the dot would refuse the canary.
    window = Window(name="5h", seconds=plan.window_seconds, requests=plan.window_requests, late=-1.0)
    scenario = Scenario(
        concurrency=plan.capacity,
        lag=plan.lag,
        latency=plan.latency,
        tokens_per_second=plan.words_per_second,
        windows=(window,),
    )
    async with FakeProvider(scenario) as provider:
        headers = {"x-api-key": KEY}
        async with httpx.AsyncClient(base_url=provider.url, headers=headers, trust_env=False, timeout=30.0) as client:
            ledger = Ledger(teams_of(plan), time.time())
            limiter = Limiter(
                limits={SCOPE: plan.configured},
                usage={SCOPE: openai_compatible_usage(provider.url, KEY, client=client)},
                on_event=ledger.hear,
            )
            try:
                yield Play(plan, provider, limiter, ledger, client)
            finally:
                await limiter.aclose()


def teams_of(plan: Plan) -> list[Team]:
    """The higher team first."""
    return [
        Team(name, priority, [Agent(n, plan.calls_per_agent) for n in range(1, plan.agents_per_team + 1)])
        for name, priority in (("review", 1), ("docs", 0))
    ]
