"""`/concurrency`: the shapes and sentences that clients rely on, and that what is set is there at once and stays."""

import json
import re
from typing import Any

import pytest
from tests.daemon import Daemon, RunDaemon

from paceline.core.signals import BillingStop, PlatformLimit, RateLimited

INVALID_JSON = {"error": "Invalid JSON body"}
INVALID_LIMIT = {"error": "Body must be { limit: <positive integer> }"}
INVALID_COOLDOWN = {"error": "Body must be { cooldownMs: <non-negative integer> }"}
NO_LIMIT = {"error": "No concurrency limit configured for this provider"}
NO_CONFIGURATION = {"error": "No concurrency configuration for this provider"}


async def scope_of(daemon: Daemon, scope: str) -> Any:
    providers = (await daemon.get("/concurrency/status"))["providers"]
    return next((each for each in providers if each["providerId"] == scope), None)


async def test_a_limit_is_set_read_listed_and_taken_away(daemon: Daemon) -> None:
    path = "/concurrency/limits/umans"

    assert await daemon.get(path, code=404) == NO_LIMIT
    assert await daemon.ask("PUT", path, {"limit": 4}) == {"providerId": "umans", "limit": 4}
    assert await daemon.get(path) == {"providerId": "umans", "limit": 4}
    assert {"providerId": "umans", "limit": 4} in (await daemon.get("/concurrency/limits"))["limits"]
    assert await daemon.ask("DELETE", path) == {"ok": True, "providerId": "umans"}
    assert await daemon.get(path, code=404) == NO_LIMIT
    assert await daemon.ask("DELETE", path, code=404) == NO_LIMIT


@pytest.mark.parametrize("body", ["", "{", "limit=4", "\xff", '{"limit": 4}}'])
async def test_a_body_that_is_no_json(daemon: Daemon, body: str) -> None:
    for path in ("/concurrency/limits/umans", "/concurrency/cooldown/umans"):
        answer = await daemon.client.put(path, content=body.encode("latin-1"))
        assert (answer.status_code, answer.json()) == (400, INVALID_JSON)


@pytest.mark.parametrize("limit", [0, -1, 4.5, "10", True, None, [4], 10**12, 1e300])
async def test_a_limit_that_is_none_changes_nothing(daemon: Daemon, limit: object) -> None:
    before = await daemon.get("/concurrency/limits")

    refused = await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": limit}, code=400)

    assert refused == INVALID_LIMIT
    assert await daemon.get("/concurrency/limits") == before


@pytest.mark.parametrize("body", [{}, [], 4, "limit", None, {"Limit": 4}])
async def test_a_body_without_a_limit(daemon: Daemon, body: object) -> None:
    answer = await daemon.client.put("/concurrency/limits/umans", content=json.dumps(body))

    assert (answer.status_code, answer.json()) == (400, INVALID_LIMIT)


async def test_a_cooldown_is_set_and_read_in_milliseconds(daemon: Daemon) -> None:
    path = "/concurrency/cooldown/umans"

    assert await daemon.get(path, code=404) == NO_CONFIGURATION
    assert await daemon.ask("PUT", path, {"cooldownMs": 350}) == {"providerId": "umans", "cooldownMs": 350}
    assert await daemon.get(path) == {"providerId": "umans", "cooldownMs": 350}
    assert await daemon.ask("PUT", path, {"cooldownMs": 0}) == {"providerId": "umans", "cooldownMs": 0}
    assert await daemon.get(path) == {"providerId": "umans", "cooldownMs": 0}


@pytest.mark.parametrize("cooldown", [-1, 0.5, "350", False, None, 10**15])
async def test_a_cooldown_that_is_none(daemon: Daemon, cooldown: object) -> None:
    refused = await daemon.ask("PUT", "/concurrency/cooldown/umans", {"cooldownMs": cooldown}, code=400)

    assert refused == INVALID_COOLDOWN
    assert await daemon.get("/concurrency/cooldown/umans", code=404) == NO_CONFIGURATION


@pytest.mark.parametrize(
    ("written", "scope"),
    [
        ("anthropic/max-1", "anthropic/max-1"),
        ("anthropic%2Fmax-1", "anthropic/max-1"),
        ("anthropic%2fmax-1/claude-opus-4-6-20260105", "anthropic/max-1/opus-4-6"),
        ("anthropic/*/opus-*", "anthropic/*/opus-*"),
        ("anthropic%2F%2A%2Fopus-%2A", "anthropic/*/opus-*"),
        ("sessions", "sessions"),
        ("agent:claude", "agent:claude"),
    ],
)
async def test_scopes_with_slashes_and_patterns(daemon: Daemon, written: str, scope: str) -> None:
    assert await daemon.ask("PUT", f"/concurrency/limits/{written}", {"limit": 3}) == {"providerId": scope, "limit": 3}
    assert await daemon.get(f"/concurrency/limits/{written}") == {"providerId": scope, "limit": 3}


@pytest.mark.parametrize("written", ["a//b", "a b", "x%00y", "%25", "campaign:", "a/b/"])
async def test_a_name_that_is_no_scope(daemon: Daemon, written: str) -> None:
    for method, path in (("PUT", "limits"), ("GET", "limits"), ("GET", "cooldown"), ("POST", "restore")):
        refused = await daemon.ask(method, f"/concurrency/{path}/{written}", {"limit": 3}, code=400)
        assert list(refused) == ["error"]


async def test_a_pattern_gives_each_scope_its_limit(daemon: Daemon) -> None:
    assert (await daemon.get("/concurrency/limits/anthropic/max-9/opus-4-6"))["limit"] == 4

    await daemon.ask("DELETE", "/concurrency/limits/anthropic/max-9/opus-4-6")

    assert await daemon.get("/concurrency/limits/anthropic/max-9/opus-4-6", code=404) == NO_LIMIT
    assert (await daemon.get("/concurrency/limits/anthropic/max-8/opus-4-6"))["limit"] == 4


async def test_the_status_of_a_scope_that_was_only_limited(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": 4})

    assert await scope_of(daemon, "umans") == {
        "providerId": "umans",
        "limit": 4,
        "inFlight": 0,
        "queued": 0,
        "paused": False,
        "cooldownMs": 350,
        "autoReduced": False,
        "configured": 4,
    }


async def test_the_status_leaves_out_what_is_absent_and_what_would_count_a_slot_again(daemon: Daemon) -> None:
    slot = await daemon.engine.limiter.acquire("umans/a")
    await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": 4})
    await daemon.ask("DELETE", "/concurrency/limits/umans")
    daemon.engine.limiter.report("umans", RateLimited(retry_after=30.0, cause="requests"))

    rows = (await daemon.get("/concurrency/status"))["providers"]
    slot.release()

    assert [(row["providerId"], row["inFlight"], row.get("limit", "none")) for row in rows] == [
        ("umans", 1, "none"),
        ("umans/a", 1, "none"),
    ]
    names = re.findall(r'"(\w+)":', json.dumps(rows))
    assert [name for name in names if "_" in name] == []
    assert "null" not in json.dumps(rows)
    times = [row[name] for row in rows for name in ("pausedSince", "pausedUntil") if name in row]
    assert [time / 1000 for time in times] == pytest.approx([daemon.context.now, daemon.context.now + 30], abs=5)


async def test_the_status_of_a_scope_after_a_429_and_its_restoring(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": 4})
    await daemon.ask("PUT", "/concurrency/cooldown/umans", {"cooldownMs": 60_000})
    slot = await daemon.engine.limiter.acquire("umans")
    (await daemon.engine.limiter.acquire("umans")).release()
    daemon.engine.limiter.report("umans", RateLimited(retry_after=30.0, ticket=slot.id))
    daemon.engine.limiter.report("umans", PlatformLimit(limit=2, in_use=2))

    reduced = await scope_of(daemon, "umans")
    restored = await daemon.ask("POST", "/concurrency/restore/umans")
    after = await scope_of(daemon, "umans")
    slot.release()

    assert reduced.pop("pausedUntil") == pytest.approx(daemon.context.now * 1000 + 30_000, abs=5000)
    assert reduced.pop("pausedSince") == pytest.approx(daemon.context.now * 1000, abs=5000)
    learnt = reduced.pop("learnt")
    assert learnt.pop("refusedAt") == pytest.approx(daemon.context.now * 1000, abs=5000)
    assert learnt.pop("nextTryAt") == pytest.approx(daemon.context.now * 1000 + 1_800_000, abs=5000)
    assert learnt == {
        "held": 3,
        "of": 4,
        "refusedLevel": 4,
        "nextLevel": 4,
        "reason": "nothing was refused since",
    }
    assert reduced == {
        "providerId": "umans",
        "limit": 2,
        "inFlight": 2,
        "queued": 0,
        "paused": True,
        "pausedReason": "rate_limited",
        "cooldownMs": 60_000,
        "autoReduced": True,
        "autoReducedFrom": 4,
        "notice": "auto-reduced to 3 from 4 after a 429: restore",
        "configured": 4,
        "platform": 2,
        "adaptive": 3,
    }
    assert restored == {"ok": True, "providerId": "umans", "limit": 4}
    assert (after["limit"], after["autoReduced"], after.get("adaptive"), after.get("notice")) == (4, False, None, None)


async def test_restoring_lifts_a_hold(daemon: Daemon) -> None:
    daemon.engine.limiter.report("umans/a", BillingStop(detail="log in again"))
    held = await scope_of(daemon, "umans/a")

    await daemon.ask("POST", "/concurrency/restore/umans/a")

    assert held["notice"] == "held: log in again"
    assert "notice" not in await scope_of(daemon, "umans/a")


async def test_restoring_what_nobody_knows(daemon: Daemon) -> None:
    assert await daemon.ask("POST", "/concurrency/restore/nobody", code=404) == NO_CONFIGURATION


async def test_the_limit_of_a_campaign_is_the_campaigns_own(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", state="paused")

    await daemon.ask("PUT", "/concurrency/limits/campaign:docs", {"limit": 2})

    assert (await daemon.get("/v1/campaigns/docs"))["max_sessions"] == 2
    assert "docs" in (await daemon.ask("PUT", "/concurrency/limits/campaign:doc", {"limit": 2}, code=404))["error"]


async def test_a_restart_keeps_limits_cooldowns_and_their_absence(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon:
        await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": 7})
        await daemon.ask("PUT", "/concurrency/cooldown/umans", {"cooldownMs": 1500})
        await daemon.ask("DELETE", "/concurrency/limits/runs")
    async with run_daemon() as daemon:
        assert await daemon.get("/concurrency/limits/umans") == {"providerId": "umans", "limit": 7}
        assert await daemon.get("/concurrency/cooldown/umans") == {"providerId": "umans", "cooldownMs": 1500}
        assert await daemon.get("/concurrency/limits/runs", code=404) == NO_LIMIT


async def test_a_change_is_in_the_store_when_it_is_answered(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": 7})

    names = [stored.event.name for stored in daemon.store.events() if stored.event.scope == "umans"]
    assert names[0] == "control.limit"
    stored = daemon.store.load_state("governor")
    assert stored is not None
    assert json.loads(stored)["limits"]["umans"] == 7


async def test_a_rate_is_set_shown_with_its_use_and_reset(daemon: Daemon) -> None:
    path = "/concurrency/rates/umans"
    shown = {"kind": "requests", "source": "set", "used": 0, "limit": 60, "periodMs": 60_000}

    assert await daemon.ask("PUT", path, {"rpm": 60}) == {"providerId": "umans", "rpm": 60, "tpm": None}
    assert (await scope_of(daemon, "umans"))["rates"] == [shown | {"reason": "set for the scope"}]
    scopes = (await daemon.get("/v1/scopes?scope=umans"))["scopes"]
    assert [each["limit"] for each in scopes[0]["rates"]] == [60]
    assert await daemon.ask("DELETE", path) == {"ok": True, "providerId": "umans"}
    assert "rates" not in ((await scope_of(daemon, "umans")) or {})


@pytest.mark.parametrize("rpm", [0, -1, 4.5, "10", True])
async def test_a_rate_that_is_none_changes_nothing(daemon: Daemon, rpm: object) -> None:
    refused = await daemon.ask("PUT", "/concurrency/rates/umans", {"rpm": rpm}, code=400)

    assert refused == {"error": "Body must be { rpm: <positive integer or null>, tpm: <positive integer or null> }"}
    assert await scope_of(daemon, "umans") is None


async def test_restore_ends_a_pause_and_says_until_then_why(daemon: Daemon) -> None:
    daemon.engine.limiter.report("umans", RateLimited(retry_after=500.0, cause="tokens"))
    paused = await scope_of(daemon, "umans")
    assert (paused["paused"], paused["pausedReason"]) == (True, "tokens")

    await daemon.ask("POST", "/concurrency/restore/umans")

    assert (await scope_of(daemon, "umans"))["paused"] is False
