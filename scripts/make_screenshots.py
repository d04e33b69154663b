#!/usr/bin/env python3
"""Makes the pictures of the dashboard: a busy night, an empty home, a server that is away, and a gateway alone.

    python scripts/make_screenshots.py                           # those of the documents, in docs/pictures
    python scripts/make_screenshots.py --all FOLDER [--whole]    # each state at each width; the whole page

The page, the server, the engine, the store, the sessions and the calls are real. Only the past is invented: hours of
sessions are written into a fresh store as an engine would have written them. `paceline up` then continues from there
and adopts the sessions that still run. The signals of the providers are reported over its own API, and a fake provider
answers the calls. Takes about two minutes.
"""

import argparse
import contextlib
import heapq
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.executors.process import ProcessExecutor
from paceline.store import Campaign, OutcomeRecord, SqliteStore, Unit, UnitSpec
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZES = {390: 844, 1280: 860, 1920: 1080}
IN_DOCUMENTS = {("busy", 390), ("busy", 1280), ("busy", 1920), ("gateway", 1280), ("empty", 1280), ("outage", 1280)}
"""The states and widths whose pictures the documents show."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
HOUR = 3600.0
ZONE = "Europe/Paris"
SETTINGS = """
[pool]
sessions = 10
[limits]
"anthropic/max-1" = 3
"anthropic/max-2" = 6
"anthropic/*/opus-*" = 4
"anthropic/*/sonnet-*" = 6
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.max-2]
provider = "anthropic"
kind = "subscription"
[accounts.team-key]
provider = "openai"
kind = "metered"
key_env = "TEAM_KEY"
[accounts.ai-pro]
provider = "google"
kind = "subscription"
"""
FIRST_SETTINGS = """
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
"""
GATEWAY_SETTINGS = """
[accounts.key-a]
provider = "anthropic"
kind = "metered"
key_env = "KEY_A"
base_url = "URL"
[accounts.key-b]
provider = "anthropic"
kind = "metered"
key_env = "KEY_B"
base_url = "URL"
[key_pools.team]
accounts = ["key-a", "key-b"]
[limits]
"anthropic/key-a" = 3
"anthropic/key-b" = 3
"""
KEYS: dict[str, dict[str, object]] = {
    "search": {"weight": 2, "budget": "$50/month"},
    "support": {"parallel": 4, "rpm": 600},
    "trial": {"budget": "$0.05/day"},
}
CLIENTS = [
    *(("search", "claude-sonnet-4-5") for _ in range(6)),
    *(("support", "claude-haiku-4-5") for _ in range(4)),
    ("trial", "claude-haiku-4-5"),
]
"""Who calls all the time, and which model."""
WORKS = """
echo "> reading $PACELINE_UNIT"; echo "> 3 functions without a docstring"; echo "> writing"; sleep 900
"""
MODULES = (
    "auth",
    "billing",
    "cart",
    "catalog",
    "email",
    "export",
    "invoice",
    "login",
    "orders",
    "pricing",
    "search",
    "users",
)
PARTS = ("models", "views", "tasks", "schemas", "signals", "admin", "forms", "urls", "tests", "utils", "cli", "cache")


def campaign(name: str, model: str, accounts: tuple[str, ...], *, priority: int = 0) -> Campaign:
    """Return a campaign that is paused until the signals of the providers are reported."""
    command = ("sh", "-c", WORKS)
    return Campaign(name=name, model=model, accounts=accounts, priority=priority, command=command, state="paused")


class Place:
    """One place of an account, which runs sessions one after the other."""

    def __init__(self, account: str, model: str, campaigns: tuple[str, ...]) -> None:
        self.account = account
        self.scope = f"{'openai' if account == 'team-key' else 'anthropic'}/{account}/{model}"
        self.campaigns = campaigns


PLACES = [
    *(Place("max-1", "opus-4-6", ("docstrings",)) for _ in range(3)),
    *(Place("max-2", "opus-4-6", ("docstrings",)) for _ in range(2)),
    *(Place("max-2", "sonnet-4-5", ("review", "release-notes")) for _ in range(3)),
    *(Place("team-key", "gpt-5", ("translate-help",)) for _ in range(2)),
]
CAMPAIGNS = [
    (campaign("docstrings", "opus-4-6", ("max-1", "max-2"), priority=3), 144),
    (campaign("review", "sonnet-4-5", ("max-2",), priority=1), 96),
    (campaign("translate-help", "gpt-5", ("team-key",)), 72),
    (campaign("release-notes", "sonnet-4-5", ("max-2",)), 6),
]
"""Each campaign with its number of units."""


class Past:
    """The history of the last hours, as an engine would have stored it."""

    def __init__(self, folder: Path, store: SqliteStore, executor: ProcessExecutor, now: float) -> None:
        self._folder = folder
        self._store = store
        self._executor = executor
        self._now = now
        self._dice = random.Random(7)
        self._events: list[Event] = []
        self._spent_at = {"max-1": now - 0.7 * HOUR, "max-2": now - 4.3 * HOUR}
        self._open_at = {"max-1": now + 2.13 * HOUR, "max-2": now - 3.6 * HOUR}
        self._tries = 0

    def write(self) -> None:
        begin = self._now - 5.6 * HOUR
        for campaign, size in CAMPAIGNS:
            names = [f"{module}/{part}" for part in PARTS for module in MODULES][:size]
            specs = [UnitSpec(id=name, prompt=f"{campaign.name}: {name}.py", cwd=str(self._folder)) for name in names]
            self._store.add_campaign(campaign, specs, update=False, now=begin)
        due = [(begin + 400 * self._dice.random(), at) for at in range(len(PLACES))]
        while due:
            start, at = heapq.heappop(due)
            free_at = self._session(PLACES[at], start)
            if free_at is not None:
                heapq.heappush(due, (free_at, at))
        self._store.hold_units(["review/users/urls"], "has spent 5 fresh windows by itself", now=self._now)
        self._add_marks()
        self._store.append_events(sorted(self._events, key=lambda event: event.at))

    def _session(self, place: Place, start: float) -> float | None:
        """Add one session. Returns when its place is free again, or None if that is in the future."""
        closed, opened = self._spent_at.get(place.account, 0.0), self._open_at.get(place.account, 0.0)
        if closed <= start < opened:
            return opened + 60 * self._dice.random() if opened < self._now else None
        self._store.wake_units(now=start)
        unit = self._claim(place, start)
        if unit is None:
            return None
        end = start + self._dice.uniform(200, 1500)
        if start < closed <= end:
            self._settle(unit, closed + 20 * self._dice.random(), "parked", place, opened)
        elif end > self._now - 5:
            self._run_on(unit)
            return None
        else:
            self._settle(unit, end, "failed" if self._dice.random() < 0.025 else "succeeded", place)
        return end + self._dice.uniform(3, 120)

    def _claim(self, place: Place, now: float) -> Unit | None:
        self._tries += 1
        for campaign in self._dice.sample(place.campaigns, len(place.campaigns)):
            claimed = self._store.claim_units(
                campaign, place.account, 1, attempt_ids=[f"past-{self._tries}"], lease_until=self._now + 60, now=now
            )
            if claimed:
                fields: dict[str, object] = {"attempt": claimed[0].attempt_id, "session_id": None}
                self._events.append(Event("unit.started", now, place.scope, claimed[0].id, fields))
                return claimed[0]
        return None

    def _settle(
        self,
        unit: Unit,
        at: float,
        ending: Literal["parked", "failed", "succeeded"],
        place: Place,
        resume_at: float = 0.0,
    ) -> None:
        reasons = {
            "parked": f"the 5h window of {place.scope.rpartition('/')[0]} is spent",
            "failed": "exit code 1: 2 tests failed",
            "succeeded": "done",
        }
        outcome = AttemptOutcome(
            ending=ending,
            reason=reasons[ending],
            resume_at=resume_at or None,
            exit_code=0 if ending == "succeeded" else 1,
        )
        transition = transition_after(unit.counters, outcome, Policy(max_attempts=1), at)
        self._store.record_outcomes([OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition)], now=at)
        name = {"parked": "parked", "failed": "quarantined", "succeeded": "done"}[ending]
        fields: dict[str, object] = {
            "reason": outcome.reason,
            "resume_at": transition.resume_at,
            "exit_code": outcome.exit_code,
            "attempts": transition.counters.failures,
        }
        self._events.append(Event(f"unit.{name}", at, None, unit.id, fields))

    def _run_on(self, unit: Unit) -> None:
        """Start a real session, for the engine to adopt."""
        assert unit.attempt_id is not None
        env = {"PATH": os.environ["PATH"], "PACELINE_UNIT": unit.id}
        argv = ("sh", "-c", WORKS)
        self._executor.start(Launch(attempt_id=unit.attempt_id, argv=argv, env=env, cwd=str(self._folder)))

    def _add_marks(self) -> None:
        refused_at, raised_at = self._now - 2.1 * HOUR, self._now - 1.2 * HOUR
        self._mark("scope.paused", refused_at, "max-2", until=refused_at + 30, cause="concurrency")
        self._mark("scope.limit_reduced", refused_at, "max-2", limit=5, previous=6, reduced_from=6)
        self._mark("scope.limit_raised", raised_at, "max-2", limit=6, previous=5)
        for account, at in self._spent_at.items():
            self._mark("window.closed", at, account, window="5h", resets_at=self._open_at[account], source="header")
        self._mark("window.reopened", self._open_at["max-2"], "max-2", window="5h")

    def _mark(self, name: str, at: float, account: str, **fields: object) -> None:
        self._events.append(Event(name, at, f"anthropic/{account}", fields=fields))


# -- the daemon ----------------------------------------------------------------------------------


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator["Stage"]:
    """Start `paceline up` and yield the address that it prints."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PACELINE_HOME": str(folder / "home"),
        **dict.fromkeys(("TEAM_KEY", "KEY_A", "KEY_B"), "none"),
        "TZ": ZONE,
    }
    command = [sys.executable, "-m", "paceline", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
            yield Stage(url, process)
        finally:
            process.terminate()


class Stage:
    """A daemon that runs for a picture."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        self.url = url
        self._process = process

    def client(self) -> httpx.Client:
        base, _, token = self.url.partition("/?token=")
        headers = {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def tell_what_providers_said(client: httpx.Client, now: float) -> None:
    """Report the signals of the providers, then resume the campaigns that waited for them."""

    def report(scope: str, kind: str, **fields: object) -> None:
        client.post("/v1/signals", json={"scope": scope, "kind": kind, **fields}).raise_for_status()

    with client:
        read = {"source": "header", "confidence": 0.95}
        report("anthropic/max-1", "quota_closed", window="5h", resets_at=now + 2.13 * HOUR, **read)
        report("anthropic/max-1", "budget", window="weekly", used_ratio=0.63, resets_at=now + 76 * HOUR, **read)
        report("anthropic/max-2", "budget", window="5h", used_ratio=0.41, resets_at=now + 1.4 * HOUR, **read)
        report("anthropic/max-2", "rate_limited", retry_after=240, cause="concurrency", source="header")
        report("openai/team-key", "platform_limit", limit=3, in_use=3)
        report("google/ai-pro", "auth_failed", detail="the login has expired: start gemini and sign in")
        client.post("/v1/resume").raise_for_status()


@contextlib.contextmanager
def busy(folder: Path) -> Iterator[Stage]:
    """Run the whole night. Afterwards none of its processes is left."""
    (folder / "paceline.toml").write_text(SETTINGS)
    (folder / "home").mkdir(mode=0o700)
    store, executor = SqliteStore(folder / "home" / "paceline.db"), ProcessExecutor(str(folder / "home" / "spool"))
    now = time.time()
    try:
        Past(folder, store, executor, now).write()
        with daemon(folder) as stage:
            tell_what_providers_said(stage.client(), now)
            yield stage
    finally:
        for unit in store.running_units():
            handle = executor.adopt(unit.attempt_id or "")
            if handle is not None:
                executor.kill(handle)
        executor.close()
        store.close()


@contextlib.contextmanager
def empty(folder: Path) -> Iterator[Stage]:
    """Start in a home in which nothing has run yet."""
    (folder / "paceline.toml").write_text(FIRST_SETTINGS)
    with daemon(folder) as stage:
        yield stage


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[Stage]:
    """Let the clients of three keys call a pool of two accounts, more than it takes at once."""
    scenario = Scenario(latency=0.4, reply_tokens=700, models=tuple({model for _, model in CLIENTS}))
    with FakeProvider(scenario) as provider:
        (folder / "paceline.toml").write_text(GATEWAY_SETTINGS.replace("URL", provider.url))
        with daemon(folder) as stage, stage.client() as client, ThreadPoolExecutor(16) as pool:
            is_over = False
            keys = {name: make_key(client, name, **rules) for name, rules in KEYS.items()}

            def call(name: str, model: str) -> None:
                messages = [{"role": "user", "content": "Hello. " * 900}]
                body = {"model": model, "max_tokens": 900, "messages": messages}
                with httpx.Client(base_url=client.base_url, headers={"x-api-key": keys[name]}, timeout=60) as team:
                    while not is_over:
                        answer = team.post("/gateway/team/v1/messages", json=body)
                        time.sleep(0.05 if answer.is_success else 2.0)

            for name, model in CLIENTS:
                pool.submit(call, name, model)
            time.sleep(12)
            provider.script("429_retry_after", times=2)
            time.sleep(4)
            try:
                yield stage
            finally:
                is_over = True


def make_key(client: httpx.Client, name: str, **rules: object) -> str:
    made = client.post("/v1/keys", json={"name": name, "pool": "team", **rules}).raise_for_status()
    key: str = made.json()["key"]
    return key


# -- the pictures --------------------------------------------------------------------------------

STATES = {"busy": busy, "empty": empty, "gateway": gateway, "outage": busy}


def take(browser: Browser, state: str, stage: Stage, sizes: list[int], picture: Callable[[Page, str], None]) -> None:
    """Open all pages, let the server stop where that is what is shown, and take the pictures."""
    pages = {(width, scheme): open_page(browser, stage.url, width, scheme) for width in sizes for scheme in SCHEMES}
    if state == "outage":
        stage.stop()
    for (width, scheme), page in pages.items():
        page.locator("#stale" if state == "outage" else "#connection:has-text('live')").wait_for()
        if state in ("busy", "outage"):
            page.locator(".unit-row:not(.blank)").first.wait_for()
            page.locator("#timeline .u-wrap").wait_for()
        if state == "gateway":
            page.locator("#calls tbody tr").first.wait_for()
        page.wait_for_timeout(1500)  # two updates, so that every section has settled
        picture(page, f"dashboard-{width}-{scheme}.png" if state == "busy" else f"{state}-{width}-{scheme}.png")
        page.context.close()


def open_page(browser: Browser, url: str, width: int, scheme: Literal["light", "dark"]) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": SIZES[width]},
        color_scheme=scheme,
        reduced_motion="reduce",
        timezone_id=ZONE,
    )
    page = context.new_page()
    page.goto(url)
    page.locator("body[data-at]").wait_for()
    return page


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="write every state at every width there")
    parser.add_argument("--state", choices=STATES, action="append", help="only this state")
    parser.add_argument("--whole", action="store_true", help="the whole page instead of one screen")
    wanted = parser.parse_args()
    target: Path = wanted.all or PICTURES
    target.mkdir(parents=True, exist_ok=True)

    def picture(page: Page, name: str) -> None:
        page.screenshot(path=target / name, full_page=wanted.whole)
        print(f"wrote {name}, {(target / name).stat().st_size // 1024} kB", flush=True)

    names = ("chromium", "chromium-browser", "chromium-headless-shell")
    path = next(filter(None, map(shutil.which, names)), None)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as browser,
    ):
        for state in wanted.state or STATES:
            sizes = [width for width in SIZES if wanted.all or (state, width) in IN_DOCUMENTS]
            with (
                tempfile.TemporaryDirectory(prefix="paceline-pictures-") as folder,
                STATES[state](Path(folder)) as stage,
            ):
                take(browser, state, stage, sizes, picture)


if __name__ == "__main__":
    main()
