"""Looking in over HTTP: status, overview, sessions, accounts, windows, and the document that describes it all."""

import os
import time
from importlib.metadata import version
from typing import Any

import pytest
from tests.daemon import Daemon, RunDaemon

from paceline.core.signals import Budget, QuotaClosed, RateLimited

WAITS = "while [ ! -e go ]; do sleep 0.02; done"
ACCOUNTS = """
[limits]
"anthropic/max-1" = 6
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
env = { CLAUDE_CONFIG_DIR = "/somewhere/secret-folder" }
reserve = 0.2
[accounts.work]
provider = "anthropic"
kind = "metered"
key_env = "WORK_KEY"
base_url = "https://api.example.com"
"""


async def capacity_of(daemon: Daemon, scope: str) -> Any:
    rows = (await daemon.get("/v1/overview"))["capacity"]
    return next((row for row in rows if row["scope"] == scope), None)


async def test_the_health_is_open(daemon: Daemon) -> None:
    async with daemon.new_client() as stranger:
        answer = await stranger.get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"ok": True})


async def test_the_status_of_an_empty_home(daemon: Daemon) -> None:
    assert await daemon.get("/v1/status") == {
        "engine": {
            "state": "leading",
            "since": daemon.context.process.since,
            "version": version("paceline"),
            "pid": os.getpid(),
        },
        "pool": {"sessions": 4, "running": 0, "waiting": 0, "parked": 0},
        "units": {"todo": 0, "running": 0, "done": 0, "unverified": 0, "quarantined": 0, "held": 0, "cancelled": 0},
        "next_resume_at": None,
        "gateway": {"in_flight": 0, "waiting": 0, "per_minute": 0, "refused_per_minute": 0},
        "throughput": 0,
        "pace": 0.0,
        "eta": None,
    }


async def test_the_status_counts_what_runs_waits_is_parked_and_is_done(daemon: Daemon) -> None:
    until = time.time() + 3600
    daemon.add("done", "true", "a", "b")
    await daemon.until(lambda: daemon.counts("done").done == 2)
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    daemon.park("docs", until)

    status = await daemon.get("/v1/status")

    assert status["pool"] == {"sessions": 1, "running": 1, "waiting": 1, "parked": 1}
    stopped = {"unverified": 0, "quarantined": 0, "held": 0, "cancelled": 0}
    assert status["units"] == {"todo": 2, "running": 1, "done": 2} | stopped
    assert status["next_resume_at"] == pytest.approx(until, abs=1)
    assert status["throughput"] == 2
    assert status["eta"] is None  # of what is left nothing was done yet: nobody can tell how fast it goes


async def test_the_pool_is_set_and_kept(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon:
        assert await daemon.get("/v1/pool") == {"sessions": 4}
        assert await daemon.ask("PUT", "/v1/pool", {"sessions": 8}) == {"sessions": 8}
        assert await daemon.get("/v1/pool") == {"sessions": 8}
    async with run_daemon() as daemon:
        assert await daemon.get("/v1/pool") == {"sessions": 8}
        assert await daemon.ask("PUT", "/v1/pool", {"sessions": None}) == {"sessions": None}
        assert (await daemon.get("/v1/status"))["pool"]["sessions"] is None


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"sessions": 0}, "sessions: Expected `int` >= 1"),
        ({"sessions": "8"}, "sessions: Expected `int | null`, got `str`"),
        ({"sessions": True}, "sessions: Expected `int | null`, got `bool`"),
        ({}, "sessions: Object missing required field `sessions`"),
        ({"sessions": 3, "size": 3}, "size: there is no such field; known are sessions"),
        ([], "the body: Expected `object`, got `array`"),
    ],
)
async def test_a_pool_that_is_none(daemon: Daemon, body: object, detail: str) -> None:
    assert await daemon.ask("PUT", "/v1/pool", body, code=400) == {"error": "invalid", "detail": detail}
    assert await daemon.get("/v1/pool") == {"sessions": 4}


async def test_a_larger_pool_takes_effect_at_once(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.until(lambda: len(daemon.engine.live_sessions()) == 1)

    await daemon.ask("PUT", "/v1/pool", {"sessions": 3})

    await daemon.until(lambda: len(daemon.engine.live_sessions()) == 3)


async def test_sessions_are_what_runs(daemon: Daemon) -> None:
    daemon.add("docs", WAITS, "a")
    await daemon.until(lambda: [live for live in daemon.engine.live_sessions() if live.handle.state().pid])

    (session,) = (await daemon.get("/v1/sessions"))["sessions"]

    unit = daemon.unit("docs/a")
    assert session.pop("pid") > 0
    assert session == {
        "unit": "docs/a",
        "campaign": "docs",
        "attempt": unit.attempt_id,
        "account": None,
        "host": None,
        "scope": None,
        "agent": "command",
        "model": None,
        "session_id": None,
        "started_at": unit.started_at,
        "tries": 1,
        "ending": None,
    }


async def test_the_overview_is_of_one_moment_and_agrees_with_the_rest(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 2})
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.until(lambda: len([live for live in daemon.engine.live_sessions() if live.handle.state().pid]) == 2)

    overview = await daemon.get("/v1/overview")

    expected = {
        "at",
        "last_event_id",
        "status",
        "campaigns",
        "capacity",
        "sessions",
        "hosts",
        "waits",
        "gateway",
        "needs",
    }
    assert set(overview) == expected
    assert overview["status"] == await daemon.get("/v1/status")
    assert overview["campaigns"] == (await daemon.get("/v1/campaigns"))["campaigns"]
    assert overview["sessions"] == (await daemon.get("/v1/sessions"))["sessions"]
    assert overview["last_event_id"] == daemon.store.append_events([])
    assert overview["waits"] == [
        {
            "campaign": "docs",
            "account": None,
            "host": None,
            "reason": "limit",
            "scope": "sessions",
            "detail": "sessions at its limit (2/2)",
            "retry_at": None,
        }
    ]
    assert await capacity_of(daemon, "sessions") == {
        "scope": "sessions",
        "kind": "pool",
        "in_flight": 2,
        "cooling": 0,
        "limit": 2,
        "configured": 2,
        "configured_source": "live",
        "configured_by": "sessions",
        "platform": None,
        "adaptive": None,
        "queued": 1,
        "cooldown": 0.0,
        "paused_until": None,
        "auto_reduced": False,
        "auto_reduced_from": None,
        "notice": None,
        "held": None,
        "windows": [],
        "pace": None,
        "paced_until": None,
        "paused_reason": None,
        "paused_since": None,
        "rates": [],
        "learnt": None,
    }


async def test_capacity_says_where_each_limit_comes_from(run_daemon: RunDaemon) -> None:
    async with run_daemon(ACCOUNTS, {"PACELINE_LIMITS": "umans=3"}) as daemon:
        daemon.add("docs", WAITS, state="paused", max_sessions=2)
        await daemon.ask("PUT", "/concurrency/limits/anthropic/work", {"limit": 5})
        daemon.engine.limiter.report("anthropic/work/opus-4-6", RateLimited(retry_after=1.0))

        rows = (await daemon.get("/v1/overview"))["capacity"]

    shown = {row["scope"]: (row["kind"], row["limit"], row["configured_source"], row["configured_by"]) for row in rows}
    assert shown == {
        "sessions": ("pool", 4, "shipped", "sessions"),
        "runs": ("pool", 50, "shipped", "runs"),
        "anthropic": ("provider", None, "", None),
        "anthropic/max-1": ("account", 6, "file", "anthropic/max-1"),
        "anthropic/work": ("account", 5, "live", "anthropic/work"),
        "anthropic/work/opus-4-6": ("model", 3, "pattern", "anthropic/*/opus-*"),
        "umans": ("provider", 3, "environment", "umans"),
        "campaign:docs": ("campaign", 2, "plan", "campaign:docs"),
    }
    assert list(shown)[:4] == ["runs", "sessions", "anthropic", "anthropic/max-1"]


async def test_a_spent_window_is_reported_in_a_line(run_daemon: RunDaemon) -> None:
    async with run_daemon(ACCOUNTS, {"TZ": "UTC"}) as daemon:
        daemon.add("docs", WAITS, "a", accounts=("max-1",), model="opus-4-6", state="paused")
        resets_at = daemon.context.now + 1800
        daemon.engine.limiter.report("anthropic/max-1", QuotaClosed(resets_at=resets_at, window="5h", source="field"))

        view = await daemon.get("/v1/campaigns/docs")
        (window,) = (await daemon.get("/v1/windows"))["windows"]
        shown = time.strftime("%H:%M", time.localtime(resets_at))

    assert view["quota"].startswith("quota spent on max-1, resumes about ")
    assert view["quota"].endswith(shown)
    assert (window["scope"], window["name"], window["state"], window["source"]) == (
        "anthropic/max-1",
        "5h",
        "closed",
        "field",
    )
    assert window["resets_at"] == resets_at


async def test_accounts_tell_names_of_variables_and_no_secret(run_daemon: RunDaemon) -> None:
    async with run_daemon(ACCOUNTS, {"WORK_KEY": "sk-very-secret"}) as daemon:
        daemon.engine.limiter.report("anthropic/max-1", Budget(used_ratio=0.4, window="5h"))
        answer = await daemon.client.get("/v1/accounts")

    first, second = answer.json()["accounts"]
    assert first.pop("windows")[0]["used_ratio"] == 0.4
    assert first == {
        "name": "max-1",
        "provider": "anthropic",
        "kind": "subscription",
        "scope": "anthropic/max-1",
        "reserve": 0.2,
        "base_url": None,
        "key": None,
        "env": [{"name": "CLAUDE_CONFIG_DIR", "is_set": True}],
        "held": None,
        "expiry": None,
        "daily_budget": None,
    }
    assert second["key"] == {"name": "WORK_KEY", "is_set": True}
    assert "secret" not in answer.text


async def test_what_is_not_there(daemon: Daemon) -> None:
    nowhere = {"error": "not_found", "detail": "there is no such route; /openapi.json lists the routes"}
    for path in ("/nothing", "/v1", "/v1/nothing", "/v1/status/more", "/described", "/schema"):
        assert await daemon.get(path, code=404) == nowhere
    assert await daemon.get("/concurrency", code=404) == {"error": nowhere["detail"]}
    refused = await daemon.client.request("PUT", "/v1/status")
    assert (refused.status_code, refused.json()["error"], refused.headers["allow"]) == (
        405,
        "method_not_allowed",
        "GET, OPTIONS",
    )
    old = await daemon.client.request("POST", "/concurrency/limits")
    assert (old.status_code, list(old.json())) == (405, ["error"])


async def test_head_is_get_without_a_body(daemon: Daemon) -> None:
    answer = await daemon.client.head("/v1/status")

    assert (answer.status_code, answer.content) == (200, b"")


async def test_the_document_describes_every_route_with_its_refusals(daemon: Daemon) -> None:
    document = await daemon.get("/openapi.json")

    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {
        ("GET", "/concurrency/limits"),
        ("PUT", "/concurrency/limits/{provider_id}"),
        ("POST", "/concurrency/restore/{provider_id}"),
        ("GET", "/v1/overview"),
        ("POST", "/v1/campaigns"),
        ("PATCH", "/v1/campaigns/{name}"),
        ("POST", "/v1/campaigns/{name}/retry"),
        ("GET", "/v1/units/{unit_id}/log"),
        ("POST", "/v1/slots"),
        ("GET", "/v1/events"),
        ("GET", "/metrics"),
        ("GET", "/healthz"),
    } <= routes
    put = document["paths"]["/concurrency/limits/{provider_id}"]["put"]
    assert put["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/LimitBody"}
    assert {"200", "400", "401", "403", "413"} <= set(put["responses"])
    assert document["security"] == [{"token": []}]


async def test_a_long_answer_is_compressed_for_a_client_that_accepts_it(run_daemon: RunDaemon) -> None:
    async with run_daemon(ACCOUNTS) as daemon:
        packed = await daemon.client.get("/v1/overview", headers={"accept-encoding": "gzip"})
        plain = await daemon.client.get("/v1/overview", headers={"accept-encoding": "identity"})

    assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert packed.json().keys() == plain.json().keys()
