#!/usr/bin/env python3
"""Makes the pictures of the dashboard: a busy night, at three widths, in light and dark.

    python scripts/make_screenshots.py

The page, the server, the engine, the store and the sessions are real. Only the past is invented: hours of sessions are
written into a fresh store as an engine would have written them. `paceline up` then continues from there and adopts the
sessions that still run. The signals of the providers are reported over its own API. Takes about half a minute.
"""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Browser, sync_playwright

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.events import Event
from paceline.executors.interface import Launch
from paceline.executors.process import ProcessExecutor
from paceline.store import Campaign, OutcomeRecord, SqliteStore, Unit, UnitSpec

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZES = {390: 844, 1280: 860, 2560: 1440}
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
        self._store.hold_units(["review/auth/cache"], "has spent 5 fresh windows by itself", now=self._now)
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
def daemon(folder: Path) -> Iterator[str]:
    """Start `paceline up` and yield the address that it prints."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PACELINE_HOME": str(folder / "home"),
        "TEAM_KEY": "none",
        "TZ": ZONE,
    }
    command = [sys.executable, "-m", "paceline", "up", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            process.terminate()


def tell_what_providers_said(url: str, now: float) -> None:
    """Report the signals of the providers, then resume the campaigns that waited for them."""
    base, _, token = url.partition("/?token=")
    client = httpx.Client(base_url=base, headers={"authorization": f"Bearer {token}"}, trust_env=False)

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
def staged(folder: Path) -> Iterator[str]:
    """Run the whole night. Afterwards none of its processes is left."""
    (folder / "paceline.toml").write_text(SETTINGS)
    (folder / "home").mkdir(mode=0o700)
    store, executor = SqliteStore(folder / "home" / "paceline.db"), ProcessExecutor(str(folder / "home" / "spool"))
    now = time.time()
    try:
        Past(folder, store, executor, now).write()
        with daemon(folder) as url:
            tell_what_providers_said(url, now)
            yield url
    finally:
        for unit in store.running_units():
            handle = executor.adopt(unit.attempt_id or "")
            if handle is not None:
                executor.kill(handle)
        executor.close()
        store.close()


# -- the pictures --------------------------------------------------------------------------------


def take(browser: Browser, url: str) -> None:
    for width, height in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                reduced_motion="reduce",
                timezone_id=ZONE,
            )
            page = context.new_page()
            page.goto(url)
            page.locator("#connection", has_text="live").wait_for()
            page.locator(".unit-row:not(.blank)").first.wait_for()
            page.locator("#timeline .u-wrap").wait_for()
            page.wait_for_timeout(1500)  # two updates, so that every section has settled
            path = PICTURES / f"dashboard-{width}-{scheme}.png"
            page.screenshot(path=path)
            print(f"wrote {path.name}, {path.stat().st_size // 1024} kB")
            context.close()


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with (
        tempfile.TemporaryDirectory(prefix="paceline-pictures-") as folder,
        staged(Path(folder)) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as browser,
    ):
        take(browser, url)


if __name__ == "__main__":
    main()
