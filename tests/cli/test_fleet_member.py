"""Several engines on one database: one leads, the others stand by and take over. Real processes, a real server."""

import asyncio
import json
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from tests.cli.test_wiring_postgres import as_address
from tests.fleet import PATIENCE_SECONDS, Fleet, fleet_in, until
from tests.link_proxy import LinkProxy
from tests.postgres_server import empty_schema, running_server

from paceline import Client
from paceline.daemon.engines import leading_engine
from paceline.daemon.home import open_home
from paceline.errors import InvalidSnapshot
from paceline.testing import FakeProvider
from paceline.testing.provider import Scenario

UNITS = 12
EXEC = ("exec", "--scope", "anthropic/key/opus", "--", "sh", "-c")
SLOT = {"scope": "anthropic/key/opus", "ttl": 60.0}


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with empty_schema(postgres_url) as url, fleet_in(tmp_path, as_address(url)) as made:
        (tmp_path / "paceline.toml").write_text('[pool]\nsessions = 3\n[limits]\n"anthropic/key" = 1\n')
        yield made


def all_done(fleet: Fleet) -> bool:
    leader = fleet.leader()
    return leader is not None and leader.status()["units"]["done"] == UNITS


def each_ran_once(fleet: Fleet, env: dict[str, str] | None = None) -> None:
    """Every unit began once and ended once, and the store says so once."""
    expected = Counter(f"u{number}" for number in range(UNITS))
    assert Counter(fleet.lines("starts")) == expected
    assert Counter(fleet.lines("ends")) == expected
    events = [json.loads(line) for line in fleet.run("events", "--json", env=env).splitlines()]
    done = (event["unit"] for event in events if event["name"] == "unit.done")
    assert Counter(done) == Counter(f"docs/{name}" for name in expected)


def test_one_leads_and_the_others_serve_reads_and_pass_changes_on(fleet: Fleet) -> None:
    first, second, third = (fleet.up(home) for home in ("a", "b", "c"))
    until(lambda: first.state == "leading")

    changed = third.http.put("/v1/pool", json={"sessions": 7})
    slot = second.http.post("/v1/slots", json=SLOT)

    assert (changed.status_code, changed.json(), slot.status_code) == (200, {"sessions": 7}, 201)
    assert [member.state for member in fleet.members] == ["leading", "standby", "standby"]
    leader = f"process {first.process.pid} on {socket.gethostname()}"
    assert [member.status()["engine"].get("leader") for member in fleet.members] == [None, leader, leader]
    assert until(lambda: second.http.get("/v1/pool").json() == {"sessions": 7})
    assert second.http.delete(f"/v1/slots/{slot.json()['id']}").status_code == 200


def test_a_killed_leader_is_replaced_and_its_sessions_are_adopted(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    fleet.run("add", fleet.plan("echo {id} >> starts; sleep 4; echo {id} >> ends", UNITS), env=second.env)
    until(lambda: len(fleet.lines("starts")) == 3)
    slot = second.http.post("/v1/slots", json=SLOT).json()

    first.process.kill()

    until(lambda: second.state == "leading")
    again = second.http.post("/v1/slots", json=SLOT)
    assert (again.status_code, again.json()["scope"]) == (409, "anthropic/key")  # the slot of before still counts
    assert second.http.post(f"/v1/slots/{slot['id']}/renew").status_code == 200
    until(lambda: all_done(fleet))
    each_ran_once(fleet)


def test_a_leader_that_stops_hands_over_at_once(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("a")
    until(lambda: first.state == "leading")
    fleet.run("add", fleet.plan("echo {id} >> starts; sleep 1; echo {id} >> ends", UNITS), env=second.env)
    until(lambda: fleet.lines("starts"))

    first.signal(signal.SIGTERM)

    assert first.process.wait(PATIENCE_SECONDS) == 0
    assert second.state == "leading"  # its lease had not run out: it was told
    until(lambda: all_done(fleet))
    each_ran_once(fleet)


def test_a_leader_that_was_suspended_for_longer_than_its_lease_does_nothing_more(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    fleet.run("add", fleet.plan("echo {id} >> starts; sleep 1; echo {id} >> ends", UNITS), env=second.env)
    until(lambda: fleet.lines("starts"))

    first.signal(signal.SIGSTOP)
    fleet.wait_for_leader(other_than=first)
    slot = second.http.post("/v1/slots", json=SLOT)
    first.signal(signal.SIGCONT)
    refused = first.http.post("/v1/slots", json=SLOT)

    assert slot.status_code == 201
    assert refused.status_code in (409, 503)  # passed on to the leader, or "not now" if it was a moment too early
    until(lambda: first.state == "standby")
    assert second.state == "leading"
    until(lambda: all_done(fleet))
    each_ran_once(fleet)


def test_a_leader_whose_connections_are_cut_keeps_the_lead(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    fleet.run("add", fleet.plan("echo {id} >> starts; sleep 1; echo {id} >> ends", UNITS), env=second.env)
    until(lambda: fleet.lines("starts"))

    with psycopg.connect(fleet.store_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'paceline'")

    until(lambda: all_done(fleet))
    assert [member.state for member in fleet.members] == ["leading", "standby"]
    each_ran_once(fleet)


def test_a_second_engine_on_sqlite_is_still_refused(fleet: Fleet) -> None:
    env = fleet.env("a")
    del env["PACELINE_STORE_URL"]
    first = fleet.start("up", "--port", "0", "--json", env=env)
    assert first.stdout is not None
    assert first.stdout.readline()

    fleet.run("up", "--port", "0", env=env, code=75)


def test_a_plan_in_the_foreground_does_not_take_the_lead_from_an_engine(fleet: Fleet) -> None:
    first = fleet.up("a")
    until(lambda: first.state == "leading")

    said = fleet.start("run", fleet.plan("true", UNITS), env=fleet.env("b"))
    _, err = said.communicate(timeout=PATIENCE_SECONDS)

    assert said.returncode == 75
    assert f"another engine (process {first.process.pid} on " in err


def test_a_passed_on_change_says_who_made_it(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")

    second.http.put("/v1/pool", json={"sessions": 7})

    (changed,) = [
        event
        for event in map(json.loads, fleet.run("events", "--audit", "--json").splitlines())
        if event["name"] == "control.limit"
    ]
    assert changed["fields"]["by"].count("(token) via ") == 1


def test_programs_wait_for_the_next_leader(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    busy = second.http.post("/v1/slots", json=SLOT).json()
    program = fleet.start(*EXEC, "echo ran", env=fleet.env("c"))
    until(lambda: "anthropic/key" in json.dumps(second.http.get("/v1/scopes").json()))

    first.process.kill()
    until(lambda: second.state == "leading")
    assert program.poll() is None  # the slot of before still counts, so it waits
    second.http.delete(f"/v1/slots/{busy['id']}")

    assert program.communicate(timeout=PATIENCE_SECONDS)[0] == "ran\n"


def test_the_engine_that_a_program_has_started_makes_way_for_one_that_runs_campaigns(fleet: Fleet) -> None:
    program = fleet.start(*EXEC, "touch began; until [ -e end ]; do sleep 0.1; done; echo ran", env=fleet.env("a"))
    until(lambda: (fleet.folder / "began").exists())

    engine = fleet.up("b")

    until(lambda: engine.state == "leading")
    refused = engine.http.post("/v1/slots", json=SLOT)
    (fleet.folder / "end").touch()
    assert (program.communicate(timeout=PATIENCE_SECONDS)[0], refused.status_code) == ("ran\n", 409)
    until(lambda: engine.http.post("/v1/slots", json=SLOT).status_code == 201)


async def test_a_client_that_waits_gets_its_slot_from_the_next_leader(fleet: Fleet) -> None:
    first, second = fleet.up("a"), fleet.up("b")
    until(lambda: first.state == "leading")
    busy = first.http.post("/v1/slots", json=SLOT).json()
    async with Client(f"{first.url},{second.url}", first.token) as client:
        waiting = asyncio.ensure_future(client.acquire("anthropic/key/opus", timeout=60.0))
        await asyncio.to_thread(until, lambda: "queued" in first.http.get("/v1/scopes").text)

        first.process.kill()
        await asyncio.to_thread(until, lambda: second.state == "leading")
        assert not waiting.done()
        await asyncio.to_thread(second.http.delete, f"/v1/slots/{busy['id']}")

        assert (await waiting).scope == "anthropic/key/opus"


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_leader_without_its_database_starts_and_grants_nothing(tmp_path: Path, fault: str) -> None:
    (tmp_path / "paceline.toml").write_text('[pool]\nsessions = 3\n[limits]\n"anthropic/key" = 1\n')
    with running_server() as server, LinkProxy(server.socket) as link, fleet_in(tmp_path, server.url) as fleet:
        first = fleet.up("a", store_url=link.url)
        until(lambda: first.state == "leading")
        second = fleet.up("b")
        plan = fleet.plan("echo {id} >> starts; sleep 1; echo {id} >> ends", UNITS)
        fleet.run("add", plan, env=second.env)
        until(lambda: fleet.lines("starts"))

        getattr(link, fault)()
        until(lambda: second.state == "leading")
        slot = second.http.post("/v1/slots", json=SLOT)
        refused = first.http.post("/v1/slots", json=SLOT)

        assert (slot.status_code, refused.status_code) == (201, 503)
        link.restore()
        until(lambda: first.state == "standby")
        assert second.state == "leading"
        until(lambda: all_done(fleet))
        each_ran_once(fleet, env=second.env)


def test_a_call_of_the_gateway_waits_for_the_next_leader(fleet: Fleet) -> None:
    with FakeProvider(Scenario(reply_tokens=20)) as provider:
        (fleet.folder / "paceline.toml").write_text(
            '[limits]\n"anthropic/key" = 1\n[accounts.key]\nprovider = "anthropic"\nkind = "metered"\nkey_env = "KEY"\n'
            f'base_url = "{provider.url}"\n'
        )
        first, second = fleet.up("a", KEY="sk-ant-api03-0"), fleet.up("b", KEY="sk-ant-api03-0")
        until(lambda: first.state == "leading")
        busy = first.http.post("/v1/slots", json=SLOT).json()
        call = {"model": "opus", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        with ThreadPoolExecutor() as threads:
            url = f"{second.url}/gateway/key/v1/messages"
            waiting = threads.submit(httpx.post, url, json=call, headers={"x-api-key": second.token}, timeout=60.0)
            until(lambda: '"queued":1' in first.http.get("/concurrency/status").text)

            first.process.kill()
            until(lambda: second.state == "leading")
            assert (waiting.done(), len(provider.requests)) == (False, 0)
            second.http.delete(f"/v1/slots/{busy['id']}")

            answer = waiting.result(timeout=PATIENCE_SECONDS)
        assert (answer.status_code, "message_stop" in answer.text, len(provider.requests)) == (200, True, 1)


def test_a_program_survives_a_restart_of_the_database(tmp_path: Path) -> None:
    with running_server() as server, fleet_in(tmp_path, server.url) as fleet:
        first = fleet.up("a")
        until(lambda: first.state == "leading")
        script = "touch began; until [ -e end ]; do sleep 0.1; done; echo ran"
        program = fleet.start(*EXEC, script, env=fleet.env("c"))
        until(lambda: (fleet.folder / "began").exists())

        server.stop("immediate")
        until(lambda: first.state == "unavailable")
        server.start()
        until(lambda: first.state == "leading")
        (fleet.folder / "end").touch()

        assert program.communicate(timeout=PATIENCE_SECONDS)[0] == "ran\n"
        until(lambda: first.http.post("/v1/slots", json=SLOT).status_code == 201)


def test_a_program_inside_a_program_shares_its_slot(fleet: Fleet) -> None:
    first = fleet.up("a")
    until(lambda: first.state == "leading")
    inner = f"{sys.executable} -m paceline exec --scope anthropic/key/opus -- echo ran"

    outer = fleet.start(*EXEC, inner, env=fleet.env("c"))

    assert outer.communicate(timeout=PATIENCE_SECONDS)[0] == "ran\n"


def test_a_start_that_fails_gives_the_lead_back(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fleet.env("a").items():
        monkeypatch.setenv(name, value)
    with open_home(start=fleet.folder) as home:
        home.store.save_state("governor", b"damaged")

        with pytest.raises(InvalidSnapshot), leading_engine(home):
            raise AssertionError("it must not start")

        assert home.store.leader(now=0.0) is None
        home.store.save_state("governor", b"")  # this process may store as others do
