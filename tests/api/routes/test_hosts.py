"""`/v1/hosts`: what people see of other machines, and the requests of workers."""

from typing import Any

import msgspec
from tests.daemon import Daemon, RunDaemon

from paceline.api.tokens import host_token_of
from paceline.hosts.messages import PROTOCOL, HostFacts, HostLoad, JoinRequest

BOX1 = "[hosts.box1]\nmax_sessions = 3\nlabels = ['gpu']\n"
FACTS = HostFacts(
    version="1", machine="box1/0", hostname="box1", home="/w", user_home="/home/ada", cpus=4, memory=1 << 34
)


def joins(protocol: int = PROTOCOL, worker: str = "home-1") -> Any:
    request = JoinRequest(worker=worker, facts=FACTS, protocol=protocol)
    return msgspec.to_builtins(request)


def reports(joining: str, *numbered: Any) -> Any:
    return {"joining": joining, "load": msgspec.to_builtins(HostLoad(free_memory=5)), "reports": list(numbered)}


async def test_a_host_is_shown_before_and_after_its_worker_has_joined(run_daemon: RunDaemon) -> None:
    async with run_daemon(BOX1) as daemon:
        (before,) = (await daemon.get("/v1/hosts"))["hosts"]
        joined = await daemon.ask("POST", "/v1/hosts/box1/join", joins())
        await daemon.ask("POST", "/v1/hosts/box1/reports", reports(joined["joining"]))
        (after,) = (await daemon.get("/v1/hosts"))["hosts"]

    shown = ("name", "presence", "hostname", "max_sessions", "labels", "free_memory")
    assert {key: before[key] for key in shown} == {
        "name": "box1", "presence": "absent", "hostname": None, "max_sessions": 3, "labels": ["gpu"],
        "free_memory": None,
    }  # fmt: skip
    assert {key: after[key] for key in shown} == {
        "name": "box1", "presence": "joined", "hostname": "box1", "max_sessions": 3, "labels": ["gpu"],
        "free_memory": 5,
    }  # fmt: skip


async def test_a_request_for_orders_is_answered_as_soon_as_there_are_any(run_daemon: RunDaemon) -> None:
    async with run_daemon(BOX1) as daemon:
        joined = await daemon.ask("POST", "/v1/hosts/box1/join", joins())
        first = await daemon.ask("POST", "/v1/hosts/box1/orders", {"joining": joined["joining"], "wait": 20.0})
    assert [order for _, order in first["orders"]] == [{"type": "sweep", "keep": []}]


async def test_a_worker_is_refused_with_what_to_do(run_daemon: RunDaemon) -> None:
    async with run_daemon(BOX1) as daemon:
        other_version = await daemon.ask("POST", "/v1/hosts/box1/join", joins(protocol=99), code=426)
        unknown = await daemon.ask("POST", "/v1/hosts/box9/join", joins(), code=404)
        not_joined = await daemon.ask("POST", "/v1/hosts/box1/orders", {"joining": "x"}, code=410)
        await daemon.ask("POST", "/v1/hosts/box1/join", joins())
        taken = await daemon.ask("POST", "/v1/hosts/box1/join", joins(worker="home-2"), code=409)
        no_call = await daemon.ask("POST", "/v1/hosts/box1/bundles/x/wanted", {"have": []}, code=404)
    assert "install the same version on both" in other_version["detail"]
    assert "there is no host 'box9'" in unknown["detail"]
    assert "join again" in not_joined["detail"]
    assert "stop that one" in taken["detail"]
    assert "has no call 'x'" in no_call["detail"]


async def test_the_token_of_a_host_is_good_for_that_host_alone(run_daemon: RunDaemon) -> None:
    async with run_daemon(BOX1 + "[hosts.box2]\n") as daemon:
        token = host_token_of(daemon.store, daemon.home.path, "box1")
        async with daemon.new_client(token) as client:
            own = await client.post("/v1/hosts/box1/join", json=joins())
            other = await client.post("/v1/hosts/box2/join", json=joins())
            status = await client.get("/v1/status")
            listed = await client.get("/v1/hosts")
    assert (own.status_code, other.status_code, status.status_code, listed.status_code) == (200, 403, 403, 403)


async def test_the_output_of_a_unit_is_read_by_position(daemon: Daemon) -> None:
    daemon.add("docs", "printf hello", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    whole = await daemon.client.get("/v1/units/docs/a/output")
    rest = await daemon.client.get("/v1/units/docs/a/output?position=3")

    assert (whole.content, rest.content) == (b"hello", b"lo")
    assert (whole.headers["x-paceline-position"], whole.headers["x-paceline-complete"]) == ("5", "1")
