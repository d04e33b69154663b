"""`/v1/slots` over a real server: every answer whole, and every odd client."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.daemon import Daemon, RunDaemon

from paceline.engine.capacity.leases import LONGEST_WAIT
from paceline.store import StoredSlot

SCOPE = "acme/max-1/large"
SETTINGS = '[limits]\n"acme" = 1\n[providers.acme]\ncooldown = "0s"\n'


@pytest.fixture
async def daemon(run_daemon: RunDaemon) -> AsyncIterator[Daemon]:
    async with run_daemon(SETTINGS) as made:
        yield made


async def take(daemon: Daemon, *, code: int = 201, **fields: object) -> Any:
    return await daemon.ask("POST", "/v1/slots", {"scope": SCOPE} | fields, code=code)


def in_flight_and_queued(daemon: Daemon) -> tuple[int, int]:
    status = daemon.engine.limiter.scope_status("acme")
    assert status is not None
    return status.in_flight, status.queued


def stored(daemon: Daemon) -> list[str]:
    return [slot.id for slot in daemon.store.slots()]


# -- answers ----------------------------------------------------------------------------------------


async def test_a_slot_is_taken_and_given_back(daemon: Daemon) -> None:
    before = time.time()
    taken = await take(daemon, ttl=30, session="s1", priority=1)

    assert taken == {"id": taken["id"], "scope": SCOPE, "token": 1, "expires_at": taken["expires_at"]}
    assert before + 29 < taken["expires_at"] < time.time() + 31
    assert stored(daemon) == [taken["id"]]
    assert in_flight_and_queued(daemon) == (1, 0)

    path = f"/v1/slots/{taken['id']}"
    assert await daemon.ask("DELETE", path) == {"ok": True, "id": taken["id"], "released": True}
    assert await daemon.ask("DELETE", path) == {"ok": True, "id": taken["id"], "released": False}
    assert (stored(daemon), in_flight_and_queued(daemon)) == ([], (0, 0))


async def test_no_slot_says_why(daemon: Daemon) -> None:
    await take(daemon)

    assert await take(daemon, code=409) == {
        "error": "deferred",
        "reason": "limit",
        "scope": "acme",
        "detail": "acme at its limit (1/1)",
        "retry_at": None,
        "position": None,
    }
    assert await take(daemon, wait=0.05, code=409) == {
        "error": "deferred",
        "reason": "limit",
        "scope": "acme",
        "detail": "acme at its limit (1/1)",
        "retry_at": None,
        "position": 1,
    }
    assert in_flight_and_queued(daemon) == (1, 0)


async def test_a_call_waits_for_its_slot(daemon: Daemon) -> None:
    held = await take(daemon)
    waiting = asyncio.create_task(take(daemon, wait=20))
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 1))

    await daemon.ask("DELETE", f"/v1/slots/{held['id']}")

    taken = await waiting
    assert taken["token"] > held["token"]
    assert stored(daemon) == [taken["id"]]
    await daemon.until(lambda: len(events(daemon, "slot.granted")) == 2)
    assert [(name, scope) for name, scope, _ in events(daemon, "slot.")] == [
        ("slot.granted", SCOPE),
        ("slot.deferred", "acme"),
        ("slot.released", SCOPE),
        ("slot.granted", SCOPE),
    ]


def events(daemon: Daemon, beginning: str) -> list[tuple[str, str | None, object]]:
    return [
        (each.event.name, each.event.scope, each.event.fields.get("ticket"))
        for each in daemon.store.events()
        if each.event.name.startswith(beginning)
    ]


async def test_renewing_a_slot_moves_its_end(daemon: Daemon) -> None:
    taken = await take(daemon, ttl=30)

    renewed = await daemon.ask("POST", f"/v1/slots/{taken['id']}/renew")

    assert renewed == taken | {"expires_at": renewed["expires_at"]}
    assert renewed["expires_at"] > taken["expires_at"]
    (slot,) = daemon.store.slots()
    assert slot.lease is not None
    assert slot.lease.expires_at == renewed["expires_at"]


async def test_what_is_not_there_is_not_found(daemon: Daemon) -> None:
    for verb, body in (("renew", None), ("signal", {"kind": "succeeded"})):
        answer = await daemon.ask("POST", f"/v1/slots/never/{verb}", body, code=404)
        assert answer["error"] == "not_found"
        assert "'never'" in answer["detail"]
    assert await daemon.ask("DELETE", "/v1/slots/never") == {"ok": True, "id": "never", "released": False}


EVERY_KIND: list[dict[str, object]] = [
    {"kind": "rate_limited", "retry_after": 20, "cause": "concurrency"},
    {"kind": "overloaded", "retry_after": 20},
    {"kind": "quota_closed", "resets_at": 4102444800, "window": "5h"},
    {"kind": "platform_limit", "limit": 3, "in_use": 3},
    {"kind": "billing_stop", "detail": "no credit"},
    {"kind": "auth_failed", "detail": "no key"},
    {"kind": "usage", "concurrent_sessions": 1, "limit": 4, "hard_cap": 8},
    {"kind": "budget", "requests_remaining": 5, "requests_reset_at": 4102444800, "reach": "account"},
    {"kind": "succeeded", "tokens": 1200, "confidence": 1, "source": "header"},
]


async def test_every_kind_of_signal_is_taken(daemon: Daemon) -> None:
    taken = await take(daemon)

    for signal in EVERY_KIND:
        assert await daemon.ask("POST", f"/v1/slots/{taken['id']}/signal", signal) == {"ok": True}
        assert await daemon.ask("POST", "/v1/signals", signal | {"scope": SCOPE}) == {"ok": True}


async def test_a_rate_limit_pauses_the_scope_of_the_slot(daemon: Daemon) -> None:
    taken = await take(daemon)
    begun = time.time()
    await daemon.ask("POST", f"/v1/slots/{taken['id']}/signal", {"kind": "rate_limited", "retry_after": 50})
    await daemon.ask("DELETE", f"/v1/slots/{taken['id']}")

    assert (await take(daemon, code=409))["reason"] == "paused"
    (status,) = (await daemon.get(f"/v1/scopes?scope={SCOPE}"))["scopes"]
    assert (status["paused"], status["in_flight"]) == (True, 0)
    assert begun + 49 < status["paused_until"] < time.time() + 51


async def test_scopes_are_reported_as_they_are(daemon: Daemon) -> None:
    await take(daemon)

    everything = {status["scope"]: status for status in (await daemon.get("/v1/scopes"))["scopes"]}
    named = (await daemon.get("/v1/scopes?scope=acme&scope=runs&scope=never"))["scopes"]

    assert named == [everything["acme"], everything["runs"]]
    assert [(status["in_flight"], status["limit"]) for status in named] == [(1, 1), (1, 50)]


# -- keys -------------------------------------------------------------------------------------------


async def test_39_a_lost_answer_is_asked_for_again(daemon: Daemon) -> None:
    taken = await take(daemon, idempotency_key="k")

    assert await take(daemon, idempotency_key="k") == taken
    assert await take(daemon, idempotency_key="k", wait=5) == taken
    refused = await take(daemon, idempotency_key="k", ttl=5, code=422)
    assert refused["error"] == "conflict"
    assert "idempotency_key" in refused["detail"]
    assert stored(daemon) == [taken["id"]]


async def test_39_the_same_key_again_while_waiting_is_one_place_in_line(daemon: Daemon) -> None:
    held = await take(daemon)
    calls = [asyncio.create_task(take(daemon, idempotency_key="k", wait=20)) for _ in range(3)]
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 1))

    await daemon.ask("DELETE", f"/v1/slots/{held['id']}")

    first, *others = await asyncio.gather(*calls)
    assert others == [first, first]
    assert stored(daemon) == [first["id"]]


# -- clients that go --------------------------------------------------------------------------------


async def test_36_a_client_that_hangs_up_leaves_the_line(daemon: Daemon) -> None:
    held = await take(daemon)
    gone = await raw_take(daemon, wait=60)
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 1))

    gone.close()

    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 0))
    await daemon.ask("DELETE", f"/v1/slots/{held['id']}")
    assert stored(daemon) == []


async def raw_take(daemon: Daemon, **fields: object) -> asyncio.StreamWriter:
    """A call on a connection of its own, whose answer nobody reads."""
    url = httpx.URL(daemon.url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    body = json.dumps({"scope": SCOPE} | fields)
    head = [
        "POST /v1/slots HTTP/1.1",
        f"host: {url.host}:{url.port}",
        f"authorization: Bearer {daemon.tokens.full}",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    writer.write("\r\n".join([*head, "", body]).encode())
    await writer.drain()
    return writer


async def test_37_a_client_that_dies_loses_its_slot_when_its_lease_and_its_grace_are_over(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.engine.capacity.leases.LOST_GRACE_SECONDS", 0.5)
    dying = await raw_take(daemon, ttl=1)
    await daemon.until(lambda: stored(daemon))
    (lost,) = stored(daemon)
    dying.close()

    taken = await take(daemon, wait=20)

    assert stored(daemon) == [taken["id"]]
    answer = await daemon.ask("POST", f"/v1/slots/{lost}/renew", code=409)
    assert (answer["error"], lost in answer["detail"]) == ("slot_lost", True)
    signal = {"kind": "rate_limited"}
    assert (await daemon.ask("POST", f"/v1/slots/{lost}/signal", signal, code=409))["error"] == "slot_lost"
    assert (await daemon.ask("DELETE", f"/v1/slots/{lost}"))["released"] is False
    await daemon.until(lambda: events(daemon, "slot.reclaimed"))
    assert events(daemon, "slot.lost") + events(daemon, "slot.reclaimed") == [
        ("slot.lost", SCOPE, lost),
        ("slot.reclaimed", SCOPE, lost),
    ]


async def test_36_nothing_is_left_of_many_clients_that_come_and_go(daemon: Daemon) -> None:
    held = await take(daemon)
    writers = [await raw_take(daemon, wait=60, idempotency_key=f"k{number}") for number in range(20)]
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 20))

    for writer in writers[::2]:
        writer.close()
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 10))
    await daemon.ask("DELETE", f"/v1/slots/{held['id']}")
    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 9))
    for writer in writers[1::2]:
        writer.close()

    await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 0))  # one has it, until its lease is over
    assert len(stored(daemon)) == 1


async def test_a_server_that_stops_lets_nobody_wait(run_daemon: RunDaemon) -> None:
    async with run_daemon(SETTINGS) as daemon:
        await take(daemon)
        waiting = await raw_take(daemon, wait=LONGEST_WAIT)
        await daemon.until(lambda: in_flight_and_queued(daemon) == (1, 1))
        begun = time.monotonic()

    assert time.monotonic() - begun < LONGEST_WAIT / 2
    waiting.close()


# -- restarts and sharing ---------------------------------------------------------------------------


async def test_37_a_daemon_that_comes_back_counts_every_lease_first(run_daemon: RunDaemon) -> None:
    async with run_daemon(SETTINGS) as daemon:
        held = await take(daemon, idempotency_key="k")

    async with run_daemon(SETTINGS) as daemon:
        assert in_flight_and_queued(daemon) == (1, 0)
        assert (await take(daemon, code=409))["reason"] == "limit"
        again = await take(daemon, idempotency_key="k")
        assert again.pop("expires_at") >= held.pop("expires_at")  # with credit for the time without a daemon
        assert again == held
        assert (await daemon.ask("POST", f"/v1/slots/{held['id']}/renew"))["token"] == held["token"]
        await daemon.ask("DELETE", f"/v1/slots/{held['id']}")
        assert (await take(daemon))["token"] > held["token"]


async def test_41_many_clients_share_one_limit(run_daemon: RunDaemon) -> None:
    """Each believes that it alone has the limit of 3, and asks for more than that at once."""
    async with run_daemon(SETTINGS.replace("= 1", "= 3")) as daemon:
        most = 0

        async def work(client: httpx.AsyncClient) -> None:
            nonlocal most
            answer = await client.post("/v1/slots", json={"scope": SCOPE, "wait": 20})
            assert answer.status_code == 201, answer.text
            most = max(most, in_flight_and_queued(daemon)[0], len(stored(daemon)))
            assert (await client.delete(f"/v1/slots/{answer.json()['id']}")).status_code == 200

        async with daemon.new_client(daemon.tokens.full) as one, daemon.new_client(daemon.tokens.full) as two:
            await asyncio.gather(*(work(client) for client in (one, two) for _ in range(30)))

        assert (most, in_flight_and_queued(daemon), stored(daemon)) == (3, (0, 0), [])


async def test_slots_and_commands_outside_are_one_kind(daemon: Daemon) -> None:
    """Who looks from another process, as `paceline status` does, sees leases as it sees commands."""
    taken = await take(daemon)

    (slot,) = daemon.store.slots()

    assert isinstance(slot, StoredSlot)
    assert (slot.id, slot.holder, slot.scopes) == (taken["id"], None, ("runs", "acme", "acme/max-1", SCOPE))


# -- bad input --------------------------------------------------------------------------------------


BAD_VALUES: list[tuple[dict[str, object], str]] = [
    ({"scope": ""}, "scope"),
    ({"scope": "has spaces"}, "scope"),
    ({"scope": 7}, "scope"),
    ({"scope": None}, "scope"),
    ({"wait": -1}, "wait"),
    ({"wait": 301}, "wait"),
    ({"wait": "10"}, "wait"),
    ({"wait": True}, "wait"),
    ({"ttl": 0}, "ttl"),
    ({"ttl": -5}, "ttl"),
    ({"ttl": "60"}, "ttl"),
    ({"ttl": True}, "ttl"),
    ({"ttl": 100_000}, "ttl"),
    ({"priority": "high"}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": True}, "priority"),
    ({"priority": 10**40}, "priority"),
    ({"since": "now"}, "since"),
    ({"session": ""}, "session"),
    ({"session": 5}, "session"),
    ({"idempotency_key": "x" * 301}, "idempotency_key"),
    ({"surprise": 1}, "surprise"),
]


async def test_bad_values_are_named_and_change_nothing(daemon: Daemon) -> None:
    for fields, named in BAD_VALUES:
        answer = await take(daemon, code=400, **fields)

        assert (answer["error"], named in answer["detail"]) == ("invalid", True), (fields, answer)
    assert (in_flight_and_queued(daemon), stored(daemon)) == ((0, 0), [])


async def test_a_body_that_is_none_is_refused(daemon: Daemon) -> None:
    for body in (b"", b"{", b"[]", b"null", b'{"scope": "acme", "ttl": NaN}', b'{"wait": 1}'):
        answer = await daemon.client.post("/v1/slots", content=body, headers={"content-type": "application/json"})

        assert (answer.status_code, answer.json()["error"]) == (400, "invalid"), body
    assert stored(daemon) == []


async def test_odd_requests_are_refused_as_everywhere(daemon: Daemon) -> None:
    large = json.dumps({"scope": "x" * (2 << 20)}).encode()
    asked: list[tuple[str, str, bytes, str, int, str]] = [
        ("POST", "/v1/slots", large, "application/json", 413, "too_large"),
        ("POST", "/v1/slots", b"scope=acme", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ("GET", "/v1/slots", b"", "", 405, "method_not_allowed"),
        ("DELETE", "/v1/slots/", b"", "", 400, "invalid"),
        ("DELETE", "/v1/slots/a/b", b"", "", 404, "not_found"),
        ("GET", "/v1/slots/a", b"", "", 405, "method_not_allowed"),
    ]
    for method, path, body, kind, code, error in asked:
        answer = await daemon.client.request(method, path, content=body, headers={"content-type": kind} if kind else {})

        assert (answer.status_code, answer.json()["error"]) == (code, error), (method, path)
    assert stored(daemon) == []


async def test_a_store_that_cannot_be_written_grants_nothing(run_daemon: RunDaemon) -> None:
    async with run_daemon(SETTINGS) as daemon:
        other = sqlite3.connect(daemon.home.path / "paceline.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = await take(daemon, code=503)
        other.execute("ROLLBACK")
        other.close()

        assert (answer["error"], "another process is writing" in answer["detail"]) == ("unavailable", True)
        await daemon.until(lambda: in_flight_and_queued(daemon) == (0, 0))
        assert stored(daemon) == []


BAD_SIGNALS: list[tuple[dict[str, object], str]] = [
    ({}, "kind"),
    ({"kind": "angry"}, "kind"),
    ({"kind": "rate_limited", "retry_after": "soon"}, "retry_after"),
    ({"kind": "rate_limited", "resets_at": 5.0}, "resets_at: rate_limited has no such field"),
    ({"kind": "rate_limited", "ticket": "x"}, "ticket"),
    ({"kind": "succeeded", "tokens": 1.5}, "tokens"),
]


async def test_a_bad_signal_is_named_and_learns_nothing(daemon: Daemon) -> None:
    taken = await take(daemon)

    for signal, named in BAD_SIGNALS:
        answer = await daemon.ask("POST", f"/v1/slots/{taken['id']}/signal", signal, code=400)

        assert named in answer["detail"]
    (status,) = (await daemon.get(f"/v1/scopes?scope={SCOPE}"))["scopes"]
    assert (status["paused"], status["windows"]) == (False, [])


async def test_a_token_for_looking_takes_no_slots(daemon: Daemon) -> None:
    async with daemon.new_client(daemon.tokens.read_only) as reader:
        refused = await reader.post("/v1/slots", json={"scope": SCOPE})

    assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
    assert stored(daemon) == []


async def test_the_document_says_what_is_answered(daemon: Daemon) -> None:
    document = await daemon.get("/openapi.json")

    operation = document["paths"]["/v1/slots"]["post"]
    assert {"201", "400", "409", "422", "503"} <= set(operation["responses"])
    body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][body]["required"] == ["scope"]
    assert {
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/v1/slots/")
    } == {
        ("/v1/slots/{slot_id}/renew", "post"),
        ("/v1/slots/{slot_id}/signal", "post"),
        ("/v1/slots/{slot_id}", "delete"),
    }


async def test_a_configured_default_login_is_one_scope_whatever_it_is_called(run_daemon: RunDaemon) -> None:
    async with run_daemon('[accounts.main]\nprovider = "anthropic"\nkind = "subscription"\n') as daemon:
        limit = await daemon.ask("PUT", "/concurrency/limits/anthropic/default", {"limit": 1})
        read = await daemon.get("/concurrency/limits/anthropic/default")
        taken = await daemon.ask("POST", "/v1/slots", {"scope": "anthropic/default/opus-4-6"}, code=201)
        refused = await daemon.ask("POST", "/v1/slots", {"scope": "anthropic/main/opus-4-6"}, code=409)
        (status,) = (await daemon.get("/v1/scopes?scope=anthropic/default"))["scopes"]

        assert limit == read == {"providerId": "anthropic/main", "limit": 1}
        assert taken["scope"] == "anthropic/main/opus-4-6"
        assert (refused["reason"], refused["scope"]) == ("limit", "anthropic/main")
        assert (status["scope"], status["in_flight"]) == ("anthropic/main", 1)
