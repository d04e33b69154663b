"""The CLI and the API are two faces of one read model: for the same state they return the same values."""

import asyncio
import time
from typing import Any

import pytest
from tests.daemon import Daemon
from tests.views.conftest import TwoFaces

from paceline.client.home_daemon import URL_FILE
from paceline.core.signals import BillingStop, Budget, QuotaClosed, RateLimited

WAITS = "while [ ! -e go ]; do sleep 0.02; done"
SETTINGS = """
[limits]
"anthropic/max-1" = 6
"acme" = 3
"other/*/large" = 2
[providers.acme]
cooldown = "30s"
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.spare]
provider = "anthropic"
kind = "subscription"
"""


@pytest.fixture
def settings() -> str:
    return SETTINGS


async def busy(faces: TwoFaces) -> None:
    """One unit runs, one waits, one is parked, one failed; limits are set, learnt, paused and closed."""
    daemon = faces.daemon
    daemon.add("bad", "echo no\\\\033[2Jt >&2; exit 3", "a", max_attempts=1)
    await daemon.until(lambda: daemon.counts("bad").quarantined == 1)
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b", "c", priority=2, max_sessions=3)
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    daemon.park("docs", time.time() + 3600)
    daemon.add("spent", WAITS, "a", accounts=("max-1",), model="opus-4-6")
    limiter = daemon.engine.limiter
    limiter.report("anthropic/max-1", QuotaClosed(resets_at=daemon.context.now + 1800, window="5h", source="field"))
    limiter.report("anthropic/spare", Budget(used_ratio=0.4, window="5h"))
    limiter.report("acme", RateLimited(retry_after=600.0, cause="concurrency"))
    limiter.report("held/key", BillingStop(detail="the login has expired"))
    await stored(daemon)


async def stored(daemon: Daemon) -> None:
    """Wait for a pass: what was learnt is in the store, where other processes read it."""
    last = daemon.store.append_events([])
    await daemon.ask("POST", "/v1/signals", {"scope": "nudge", "kind": "rate_limited", "retry_after": 500})
    daemon.engine.wake()
    await daemon.until(
        lambda: any(event.event.scope == "nudge" for event in daemon.store.events(after=last, limit=1000))
    )


def shared(one: dict[str, Any], other: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both with the keys that they have in common."""
    keys = one.keys() & other.keys()
    return {key: one[key] for key in keys}, {key: other[key] for key in keys}


async def test_an_engine_whose_campaigns_are_all_cancelled_leads(faces: TwoFaces) -> None:
    """It has nothing to do, but nobody paused it."""
    faces.daemon.add("docs", WAITS, "a")
    await faces.daemon.ask("POST", "/v1/campaigns/docs/cancel")

    states = [(await faces.cli("status"))["engine"]["state"], (await faces.http("/v1/status"))["engine"]["state"]]

    assert states == ["leading", "leading"]


@pytest.mark.parametrize(
    ("verbs", "state"),
    [
        ({"first": "pause", "second": "pause"}, "paused"),
        ({"first": "pause", "second": "cancel"}, "paused"),
        ({"first": "pause"}, "leading"),
        ({}, "leading"),
    ],
    ids=["all paused", "the rest is paused", "one is active", "all are active"],
)
async def test_an_engine_is_paused_where_campaigns_are_paused_and_none_is_active(
    faces: TwoFaces, verbs: dict[str, str], state: str
) -> None:
    faces.daemon.add("first", WAITS, "a")
    faces.daemon.add("second", WAITS, "a")
    for name, verb in verbs.items():
        await faces.daemon.ask("POST", f"/v1/campaigns/{name}/{verb}")

    states = [(await faces.cli("status"))["engine"]["state"], (await faces.http("/v1/status"))["engine"]["state"]]

    assert states == [state, state]


async def test_slots_that_cool_down_are_counted_apart_from_those_in_flight(faces: TwoFaces) -> None:
    """`in_flight` counts live slots everywhere; only `inFlight` of `/concurrency` is the sum."""
    daemon = faces.daemon
    held = await daemon.ask("POST", "/v1/slots", {"scope": "acme", "wait": 1, "ttl": 600}, code=201)
    released = await daemon.ask("POST", "/v1/slots", {"scope": "acme", "wait": 1, "ttl": 600}, code=201)
    await daemon.ask("DELETE", f"/v1/slots/{released['id']}")
    await stored(daemon)

    limits = {row["scope"]: row for row in (await faces.cli("limits"))["limits"]}
    capacity = {row["scope"]: row for row in (await faces.http("/v1/overview"))["capacity"]}
    status = {row["providerId"]: row for row in (await faces.http("/concurrency/status"))["providers"]}

    assert held["id"] != released["id"]
    assert (limits["acme"]["in_flight"], limits["acme"]["cooling"]) == (1, 1)
    assert (capacity["acme"]["in_flight"], capacity["acme"]["cooling"]) == (1, 1)
    assert status["acme"]["inFlight"] == 2
    assert "1 released slot still cooling down" in limits["acme"]["state"]


async def test_the_status_is_the_same(faces: TwoFaces) -> None:
    await busy(faces)

    of_cli, of_api = await faces.cli("status"), await faces.http("/v1/status")
    accounts, gateway = await faces.http("/v1/accounts"), await faces.http("/v1/gateway")

    only_live = {name: of_api[name] for name in ("throughput", "pace", "eta")}
    only_in_cli = {"accounts": accounts["accounts"], "failures": gateway["failures"]}
    assert {**of_cli, **only_live} == {**of_api, **only_in_cli}
    assert of_cli["units"]["quarantined"] == 1


async def test_limits_and_capacity_are_the_same(faces: TwoFaces) -> None:
    """Except for two keys that have other names, units without a ticket, and the file that the CLI names."""
    await busy(faces)

    limits = {row["scope"]: row for row in (await faces.cli("limits"))["limits"]}
    capacity = {row["scope"]: row for row in (await faces.http("/v1/overview"))["capacity"]}

    both = limits.keys() & capacity.keys()
    assert {"sessions", "anthropic/max-1", "anthropic/spare", "acme", "held/key", "campaign:docs"} <= both
    assert limits.keys() - both == {"anthropic/*/opus-*", "anthropic/*/sonnet-*", "other/*/large"}
    for scope in both:
        of_cli, of_api = shared(limits[scope], capacity[scope])
        assert of_cli | {"queued": None} == of_api | {"queued": None}
        assert of_cli["queued"] <= of_api["queued"]
        assert limits[scope]["effective"] == capacity[scope]["limit"]
        file = str(faces.daemon.home.settings.file)
        assert limits[scope]["source"].replace(file, "file") == capacity[scope]["configured_source"]


async def test_what_waits_in_a_scope_is_counted_by_all(faces: TwoFaces) -> None:
    """Calls of a gateway wait in the engine, which the command asks: the store does not know them."""
    (faces.daemon.home.path / URL_FILE).write_text(faces.daemon.url)
    limiter = faces.daemon.engine.limiter
    held = [await limiter.acquire("acme/key/m") for _ in range(3)]
    waiting = [asyncio.ensure_future(limiter.acquire("acme/key/m")) for _ in range(8)]
    await faces.daemon.until(lambda: any(each.scope == "acme" and each.queued == 8 for each in limiter.statuses()))

    limits = {row["scope"]: row["queued"] for row in (await faces.cli("limits"))["limits"]}
    scopes = {row["scope"]: row["queued"] for row in (await faces.http("/v1/scopes"))["scopes"]}
    shown = {row["scope"]: row["queued"] for row in (await faces.http("/v1/overview"))["capacity"]}
    for each in waiting:
        each.cancel()
    for slot in held:
        slot.release()

    assert [limits["acme"], scopes["acme"], shown["acme"]] == [8] * 3


async def test_campaigns_are_the_same(faces: TwoFaces) -> None:
    await busy(faces)

    of_cli, of_api = (await faces.cli("list"))["campaigns"], (await faces.http("/v1/campaigns"))["campaigns"]

    assert [each["name"] for each in of_cli] == ["bad", "docs", "spent"]
    for one, other in zip(of_cli, of_api, strict=True):
        assert one == {key: other[key] for key in one}


@pytest.mark.parametrize("state", [None, "todo", "waiting", "parked", "running", "quarantined", "done"])
async def test_units_are_the_same(faces: TwoFaces, state: str | None) -> None:
    await busy(faces)
    chosen = ("--state", state) if state else ()

    for campaign in ("docs", "bad"):
        of_cli = await faces.cli("units", campaign, *chosen)
        of_api = await faces.http(f"/v1/units?campaign={campaign}" + (f"&state={state}" if state else ""))

        assert of_cli["units"] == of_api["units"]
        assert of_api["cursor"] is None


async def test_what_units_wait_for_is_the_same(faces: TwoFaces) -> None:
    await busy(faces)
    units = (await faces.http("/v1/units"))["units"]

    reasons = []
    for unit in units:
        of_cli, of_api = await faces.cli("why", unit["id"]), await faces.http(f"/v1/units/{unit['id']}/why")
        assert {"others": [], **of_cli} == of_api
        reasons.append(of_api["reason"])

    assert sorted(reasons) == ["limit", "parked", "quarantined", "running", "window_closed"]
