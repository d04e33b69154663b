"""The demo: a fake provider on loopback, two campaigns in a temporary home, one engine, the dashboard, and the figures.

Everything is real, but small: HTTP, a SQLite store, supervised processes, output that is read as it is printed. Only
time is short: a five-hour window lasts seconds. A person sees it in the view of `paceline run`. Nothing here decides
which session may start: the engine does, as in any other home.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec

from paceline.agents import Account, AgentProfile
from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import serve
from paceline.api.tokens import load_tokens
from paceline.cli.commands.run import LiveView, drive, view_of
from paceline.cli.main import INTERRUPTED
from paceline.cli.output import print_fact, print_value, say
from paceline.core.values.scopes import SESSIONS
from paceline.daemon.contact import dashboard_url
from paceline.daemon.engines import leading_engine
from paceline.daemon.home import Home
from paceline.daemon.process import LastWarnings
from paceline.engine.engine import Engine
from paceline.events import ATTEMPT_STARTS, Event
from paceline.settings import ConfiguredLimit, EngineTable, Settings
from paceline.simulation.provider.fake import FakeProvider
from paceline.simulation.provider.scenario import Scenario, Step, Window
from paceline.store import Campaign, SqliteStore, Store, UnitSpec

# -- what is counted ----------------------------------------------------------------------------------

WAITING: Final = frozenset({"unit.requeued", "unit.failed"})


class DemoCounts:
    """The sessions of the demo: how many at once, how many resumed, and how many both campaigns wanted."""

    def __init__(self, units: Mapping[str, Collection[str]], started_at: float) -> None:
        self.started_at = started_at
        self.resumed = 0
        self.reopenings = 0
        self.peak_sessions = 0
        self.contested = dict.fromkeys(units, 0)
        """The sessions that a campaign got while the other one had work waiting, too."""
        self.done_at: dict[str, float] = {}
        self._waits_from: dict[str, float] = {f"{name}/{unit}": 0.0 for name, ids in units.items() for unit in ids}
        self._running: set[str] = set()
        self._left = {name: len(ids) for name, ids in units.items()}

    def record(self, event: Event) -> None:
        """Count an event of the engine."""
        self.reopenings += event.name == "window.reopened"
        if event.unit is None:
            return
        campaign = event.unit.partition("/")[0]
        if event.name in ATTEMPT_STARTS:
            self.contested[campaign] += all(self._waits(other, event.at) for other in self.contested)
            self._waits_from.pop(event.unit, None)
            self._running.add(event.unit)
            self.peak_sessions = max(self.peak_sessions, len(self._running))
            self.resumed += event.fields["session_id"] is not None
        elif event.name in WAITING or event.name == "unit.parked":
            resume_at = event.fields.get("resume_at")
            self._waits_from[event.unit] = resume_at if isinstance(resume_at, float) else event.at
            self._running.discard(event.unit)
        elif event.name == "unit.done":
            self._running.discard(event.unit)
            self._left[campaign] -= 1
            if not self._left[campaign]:
                self.done_at[campaign] = event.at - self.started_at

    def _waits(self, campaign: str, now: float) -> bool:
        """Return whether a unit waits for a session. A parked one whose time has come does."""
        return any(unit.startswith(f"{campaign}/") and at <= now for unit, at in self._waits_from.items())


# -- the scenario -------------------------------------------------------------------------------------

HOST = "127.0.0.1"
PROVIDER, ACCOUNT, AGENT = "anthropic", "max-1", "demo"
SCOPE = f"{PROVIDER}/{ACCOUNT}"
CAMPAIGNS = {"review": 1, "docs": 0}
"""Their priorities: one level more is twice the share."""
MODULES = (
    "auth", "billing", "cart", "catalog", "email", "export", "invoice", "login", "orders", "pricing", "search", "users",
)  # fmt: skip
EXTENTS = ("", " and its tests", " for a reader in a hurry", " in one sentence", " and of all that calls it")
"""Suffixes of the prompts. Answers differ in length with them, so that sessions do not all end at the same moment."""
TOO_LONG_SECONDS = 120.0
"""Several times the length of a demo: one that runs longer hangs."""
MOST_EVENTS = 10_000
"""Many more than a demo stores."""
HEARTBEAT_SECONDS = 0.2
"""Much shorter than in a real home, like all times of the demo."""
GRACE_SECONDS = 2.0
"""How long interrupted sessions may take to end before they are killed."""


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the demo. Times are seconds."""

    units: int = len(MODULES)
    """Per campaign."""
    steps: int = 5
    """Requests of a unit, one after the other, in one conversation."""
    sessions: int = 8
    latency: float = 0.2
    words_per_second: float = 24.0
    busy_after: int = 30
    """After this many requests a conversation meets a 429."""
    busy_seconds: float = 2.0
    window_requests: int = 62
    window_seconds: float = 20.0


class Demo(msgspec.Struct, frozen=True):
    """One run of the demo. `url` opens the dashboard, and `provider` has seen every request."""

    plan: DemoPlan
    home: Home
    engine: Engine
    provider: FakeProvider
    url: str
    started_at: float


@asynccontextmanager
async def open_demo(plan: DemoPlan) -> AsyncIterator[Demo]:
    """Set up the provider, the home and the engine. On exit all processes and files are removed."""
    async with FakeProvider(scenario_of(plan)) as provider:
        with tempfile.TemporaryDirectory(prefix="paceline-demo-") as folder:
            settings = _settings(plan, provider, Path(folder))
            with contextlib.closing(SqliteStore(settings.home / "paceline.db")) as store:
                _add_campaigns(store, plan, settings.home)
                home = Home(settings, store, {"PATH": os.defpath})
                try:
                    with leading_engine(home) as engine:
                        async with _dashboard(engine, home) as url:
                            yield Demo(plan, home, engine, provider, url, time.time())
                finally:
                    await _end_sessions(home)


def scenario_of(plan: DemoPlan) -> Scenario:
    window = Window(name="5h", seconds=plan.window_seconds, requests=plan.window_requests)
    return Scenario(
        latency=plan.latency,
        tokens_per_second=plan.words_per_second,
        windows=(window,),
        script=(
            Step(error="ok", times=plan.busy_after),
            Step(error="429_retry_after", answers=1, retry_after=plan.busy_seconds),
        ),
    )


def _add_campaigns(store: Store, plan: DemoPlan, home: Path) -> None:
    """Store the campaigns, the one with the higher priority first."""
    (home / "work").mkdir()
    for name, priority in CAMPAIGNS.items():
        specs = [
            UnitSpec(id=module, prompt=f"{name} of {module}.py{extent}", cwd=str(home / "work"))
            for module, extent in zip(MODULES[: plan.units], cycle(EXTENTS), strict=False)
        ]
        campaign = Campaign(name=name, priority=priority, agent=AGENT, accounts=(ACCOUNT,))
        store.add_campaign(campaign, specs, update=False, now=time.time())


def _settings(plan: DemoPlan, provider: FakeProvider, home: Path) -> Settings:
    """Return the settings that a paceline.toml would have."""
    conversations = home / "conversations"
    conversations.mkdir()
    env = {
        "ANTHROPIC_BASE_URL": provider.url,
        "CLAUDE_CODE_OAUTH_TOKEN": "demo",
        "CLAUDE_CONFIG_DIR": str(conversations),
        "DEMO_STEPS": str(plan.steps),
    }
    limits = [ConfiguredLimit(scope, plan.sessions, "demo") for scope in (SESSIONS, SCOPE)]
    return Settings(
        home=home,
        limits={limit.scope: limit for limit in limits},
        accounts={ACCOUNT: Account(name=ACCOUNT, provider=PROVIDER, kind="subscription", env=env)},
        engine=EngineTable(heartbeat=HEARTBEAT_SECONDS),
        store_url=f"sqlite:///{home / 'paceline.db'}",
        agents={AGENT: _profile()},
    )


def _profile() -> AgentProfile:
    """Return how the agent of the demo is started and resumed. It prints what Claude Code prints."""
    program = (sys.executable, "-I", "-S", str(Path(__file__).with_name("demo_agent.py")))
    return AgentProfile(
        name=AGENT,
        provider="claude-code",
        stream="json",
        start=(*program, "{prompt}"),
        resume=(*program, "{prompt}", "--resume", "{session_id}"),
    )


async def _end_sessions(home: Home) -> None:
    """End the sessions of an interrupted demo. Sessions outlive their engine by design; these must not."""
    with contextlib.closing(home.executor()) as executor:
        attempts = [unit.attempt_id for unit in home.store.running_units() if unit.attempt_id is not None]
        live = [handle for attempt in attempts if (handle := executor.adopt(attempt)) is not None]
        for handle in live:
            executor.stop(handle, grace=GRACE_SECONDS / 2)
        give_up_at = time.monotonic() + GRACE_SECONDS
        while any(not handle.state().is_over for handle in live) and time.monotonic() < give_up_at:
            await executor.wait_ended(GRACE_SECONDS / 10)
        for handle in live:
            if not handle.state().is_over:
                executor.kill(handle)


@asynccontextmanager
async def _dashboard(engine: Engine, home: Home) -> AsyncIterator[str]:
    """Serve the dashboard on a free port, and yield the address that opens it."""
    engine.start()
    tokens = load_tokens(home.path)
    context = ApiContext(
        engine,
        settings=home.settings,
        spool=home.spool(),
        zone=home.zone,
        environ=home.environ,
        folder=home.path,
        since=time.time(),
    )
    try:
        async with serve(create_app(context, tokens=tokens, host=HOST), HOST) as served:
            try:
                yield dashboard_url(served.url, tokens.full)
            finally:
                context.close()
    finally:
        engine.close()


# -- what a person sees -------------------------------------------------------------------------------


PLAN = DemoPlan()


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the contested sessions that a campaign got, and the share that its priority entitles it to."""

    campaign: str
    priority: int
    got: float
    due: float
    done_at: float | None


class DemoFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is counted. Times are seconds."""

    units: int
    done: int
    attempts: int
    """Charged attempts: only a real failure of the work counts."""
    sessions: int
    parked: int
    resumed: int
    """Sessions that continued a conversation."""
    conversations: int
    """As the provider saw them. As many as units: none was started twice."""
    steps: int
    answers: int
    """As many as steps: no step was asked twice."""
    refusals: int
    reopenings: int
    peak_sessions: int
    shares: tuple[Share, ...]
    seconds: float

    @property
    def lost(self) -> int:
        return self.units - self.done


def figures(demo: Demo, now: float) -> DemoFigures:
    """Return the figures, from the store and the journal of the provider."""
    counts = DemoCounts(dict.fromkeys(CAMPAIGNS, MODULES[: demo.plan.units]), demo.started_at)
    for stored in demo.home.store.events(limit=MOST_EVENTS):
        counts.record(stored.event)
    units = demo.home.store.units(limit=demo.plan.units * len(CAMPAIGNS)).units
    served = [request for request in demo.provider.requests if request.ending == "served"]
    return DemoFigures(
        units=len(units),
        done=sum(unit.state == "done" for unit in units),
        attempts=sum(unit.counters.failures for unit in units),
        sessions=sum(unit.counters.attempts for unit in units),
        parked=sum(unit.counters.parks for unit in units),
        resumed=counts.resumed,
        conversations=len({request.session for request in served}),
        steps=len(units) * demo.plan.steps,
        answers=len(served),
        refusals=demo.provider.rate_limited,
        reopenings=counts.reopenings,
        peak_sessions=counts.peak_sessions,
        shares=shares(CAMPAIGNS, counts),
        seconds=now - demo.started_at,
    )


def shares(priorities: Mapping[str, int], counts: DemoCounts) -> tuple[Share, ...]:
    """Return the shares. Each level of priority is worth twice the one below."""
    given = max(1, sum(counts.contested.values()))
    weights = sum(2.0**priority for priority in priorities.values())
    return tuple(
        Share(
            campaign=name,
            priority=priority,
            got=counts.contested[name] / given,
            due=2.0**priority / weights,
            done_at=counts.done_at.get(name),
        )
        for name, priority in priorities.items()
    )


def figure_rows(found: DemoFigures) -> list[tuple[str, str]]:
    """Return the summary as names and values."""
    return [
        ("units done", f"{found.done} of {found.units}, {found.lost} lost"),
        ("attempts charged", f"{found.attempts}; rate-limit refusals are not counted as failed attempts"),
        ("429s met", str(found.refusals)),
        ("quota window", f"closed and reopened by a canary {found.reopenings} time{'s' * (found.reopenings != 1)}"),
        ("parked", f"{found.parked} times; {found.resumed} sessions continued their conversation"),
        ("answers", f"{found.answers} for {found.steps} steps of work, in {found.conversations} conversations"),
        ("sessions", f"{found.sessions}, never more than {found.peak_sessions} at once"),
        *((f"share of {each.campaign}", _share_words(each)) for each in found.shares),
        ("time", f"{found.seconds:.0f} s"),
    ]


def _share_words(share: Share) -> str:
    done = "" if share.done_at is None else f", done after {share.done_at:.0f} s"
    return f"{share.got:.0%} while both had work (due {share.due:.0%}){done}"


def show_demo(*, as_json: bool) -> int:
    """Run the demo and show it. Returns the exit code: 0 if every unit was done."""
    try:
        found = asyncio.run(play(PLAN, as_json=as_json))
    except TimeoutError:
        print("paceline: the demo did not end in time; please report this", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # before the engine ran
        found = None
    if found is None:
        return INTERRUPTED
    if as_json:
        print_value(found)
    else:
        say("What the engine did", style="bold")
        for name, value in figure_rows(found):
            print_fact(name, value, width=18)
    return 1 if found.lost else 0


async def play(plan: DemoPlan, *, as_json: bool = False) -> DemoFigures | None:
    """Run the demo, show it, and return the figures; None if a signal stopped it.

    Raises TimeoutError if it hangs, which would be a bug.
    """
    async with open_demo(plan) as demo:
        if not as_json:
            say(f"The dashboard, while the demo runs: {demo.url}")
        view = view_of(demo.home, list(CAMPAIGNS), 0, LastWarnings(demo.home.zone), as_json=as_json)
        if isinstance(view, LiveView):
            view.hint = "Ctrl-C ends the demo and its sessions"
        async with asyncio.timeout(TOO_LONG_SECONDS):
            if await drive(demo.engine, view):
                return None
        return figures(demo, time.time())
