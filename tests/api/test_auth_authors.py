"""Every change over HTTP says who made it: all routes that change something are tried."""

from typing import Any

from tests.daemon import Daemon

from paceline.api.app import ROUTES
from paceline.api.auth import SAFE_METHODS
from paceline.engine.command_log import is_change, person
from paceline.store import StoredEvent
from paceline.testing.store_steps import ended, record

WORK = {
    ("POST", "/v1/slots"),
    ("POST", "/v1/slots/{slot_id:str}/renew"),
    ("POST", "/v1/slots/{slot_id:str}/signal"),
    ("DELETE", "/v1/slots"),
    ("DELETE", "/v1/slots/{slot_id:str}"),
    ("POST", "/v1/signals"),
    *(("POST", f"/v1/hosts/{{name:str}}/{path}") for path in ("join", "orders", "reports")),
    ("POST", "/v1/hosts/{name:str}/bundles/{call_id:str}"),
    ("POST", "/v1/hosts/{name:str}/bundles/{call_id:str}/wanted"),
}
"""Programs use capacity here, and report what providers answer; workers do what the engine orders. They change nothing
that a person has set."""
UNITS = [{"id": unit, "prompt": "wait"} for unit in ("a", "b", "c", "d")]
PLAN = {"campaign": {"name": "docs", "command": ["sleep", "600"]}, "unit": UNITS}

CAMPAIGN, UNIT = "/v1/campaigns/{name:str}", "/v1/units/{unit_id:str}"
LIMIT, COOLDOWN = "/concurrency/limits/{provider_id:str}", "/concurrency/cooldown/{provider_id:str}"
RATES = "/concurrency/rates/{provider_id:str}"
CHANGES: list[tuple[str, str, str, Any]] = [
    ("PUT", "/v1/pool", "/v1/pool", {"sessions": 1}),
    ("POST", "/v1/campaigns", "/v1/campaigns", PLAN),
    ("PATCH", CAMPAIGN, "/v1/campaigns/docs", {"priority": 3}),
    ("POST", f"{CAMPAIGN}/pause", "/v1/campaigns/docs/pause", None),
    ("POST", f"{CAMPAIGN}/resume", "/v1/campaigns/docs/resume", None),
    ("POST", "/v1/pause", "/v1/pause", None),
    ("POST", "/v1/resume", "/v1/resume", None),
    ("POST", f"{UNIT}/pause", "/v1/units/docs/d/pause", None),
    ("POST", f"{UNIT}/resume", "/v1/units/docs/d/resume", None),
    ("POST", f"{UNIT}/cancel", "/v1/units/docs/d/cancel", None),
    ("POST", f"{UNIT}/retry", "/v1/units/docs/d/retry", {"fresh": True}),
    ("POST", f"{UNIT}/accept", "/v1/units/checked/a/accept", None),
    ("PUT", LIMIT, "/concurrency/limits/umans", {"limit": 3}),
    ("PUT", LIMIT, "/concurrency/limits/campaign:docs", {"limit": 3}),
    ("PUT", COOLDOWN, "/concurrency/cooldown/umans", {"cooldownMs": 300}),
    ("POST", "/concurrency/restore/{provider_id:str}", "/concurrency/restore/umans", None),
    ("DELETE", LIMIT, "/concurrency/limits/umans", None),
    ("PUT", RATES, "/concurrency/rates/umans", {"rpm": 60}),
    ("DELETE", RATES, "/concurrency/rates/umans", None),
    ("POST", "/v1/keys", "/v1/keys", {"name": "team"}),
    ("DELETE", "/v1/keys/{name:str}", "/v1/keys/team", None),
    ("POST", f"{CAMPAIGN}/cancel", "/v1/campaigns/docs/cancel", None),
    ("POST", f"{CAMPAIGN}/retry", "/v1/campaigns/docs/retry", None),
    ("DELETE", CAMPAIGN, "/v1/campaigns/checked", None),
]
"""Every other route that changes something, in an order in which each has something to change."""


def test_every_route_that_changes_something_is_tried_here() -> None:
    routes = {(method, path) for route in ROUTES for method in route.http_methods for path in route.paths}  # type: ignore[attr-defined]
    changing = {(str(method), path) for method, path in routes if method not in SAFE_METHODS}

    assert {(method, route) for method, route, _, _ in CHANGES} | WORK == changing


async def test_every_change_over_http_says_who_made_it(daemon: Daemon) -> None:
    daemon.add("checked", "true", "a", state="paused")
    record(daemon.store, [ended(_claimed(daemon), "unverified")])
    unsigned = []
    for method, _, path, body in CHANGES:
        before = daemon.store.append_events([])
        answer = await daemon.client.request(method, path, json=body)
        assert answer.is_success, (path, answer.text)
        changes = [each for each in daemon.store.events(after=before) if is_change(each.event)]
        if not changes or any(_by(change) != f"{person()} (token)" for change in changes):
            unsigned.append((method, path))

    assert unsigned == []


async def test_what_the_engine_does_after_a_change_has_no_author(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a")
    await daemon.until(lambda: daemon.counts("docs").done)
    await daemon.ask("PUT", "/v1/pool", {"sessions": 3})

    signed = [stored.event.name for stored in daemon.store.events() if "by" in stored.event.fields]
    assert signed == ["control.limit"]


async def test_the_audit_has_changes_and_nothing_else(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a")
    await daemon.until(lambda: daemon.counts("docs").done)
    await daemon.ask("POST", "/v1/slots", {"scope": "umans", "ttl": 5}, code=201)
    await daemon.ask("PUT", "/v1/pool", {"sessions": 3})
    names: list[str] = []

    async with daemon.client.stream("GET", "/v1/events?audit=true&after=0") as stream:
        async for line in stream.aiter_lines():
            names += [line] if line.startswith("data: ") else []
            if "control.limit" in line:
                break

    assert [line for line in names if '"name":"control.' not in line] == []
    assert f'"by":"{person()} (token)"' in names[-1]


def _claimed(daemon: Daemon) -> Any:
    (unit,) = daemon.store.claim_units("checked", "", 1, attempt_ids=["t"], lease_until=9e9, now=daemon.context.now)
    return unit


def _by(change: StoredEvent) -> object:
    return change.event.fields.get("by")
