"""Engines of one fleet on several machines: a standby serves its own machine as a worker does. Real processes."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_wiring_postgres import as_address
from tests.fleet import Fleet, Member, fleet_in, until
from tests.postgres_server import empty_schema

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a process another host name")
UNITS = 8
RUN = "echo {id} >> starts; uname -n >> {id}.on; until [ -e go ]; do sleep 0.1; done; echo {id} >> ends"


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with empty_schema(postgres_url) as url, fleet_in(tmp_path, as_address(url)) as made:
        (tmp_path / "paceline.toml").write_text('[pool]\nsessions = 4\n[api]\nhosts = ["127.0.0.2"]\n')
        yield made


def finish(fleet: Fleet) -> None:
    """Let the sessions end, and check that each unit began once and ended once, and that the store says so once."""
    (fleet.folder / "go").touch()
    until(lambda: (leader := fleet.leader()) is not None and leader.status()["units"]["done"] == UNITS)
    expected = Counter(f"u{number}" for number in range(UNITS))
    assert Counter(fleet.lines("starts")) == expected
    assert Counter(fleet.lines("ends")) == expected
    events = [json.loads(line) for line in fleet.run("events", "--json").splitlines()]
    done = (event["unit"] for event in events if event["name"] == "unit.done")
    assert Counter(done) == Counter(f"docs/{name}" for name in expected)


def machines(fleet: Fleet) -> set[str]:
    return {line for file in fleet.folder.glob("*.on") for line in file.read_text().split()}


def has_joined(leader: Member, host: str) -> bool:
    hosts = leader.http.get("/v1/hosts").json()["hosts"]
    return any(each["name"] == host and each["presence"] == "joined" for each in hosts)


def test_a_standby_runs_units_of_the_leader_on_its_machine(fleet: Fleet) -> None:
    leader = fleet.up_machine("box-a")
    until(lambda: leader.state == "leading")
    standby = fleet.up_machine("box-b")
    until(lambda: has_joined(leader, "box-b"))

    fleet.run("add", fleet.plan(RUN, UNITS, head='hosts = ["box-b"]\n'), env=leader.env)
    until(lambda: len(fleet.lines("starts")) == 4)

    assert machines(fleet) == {"box-b"}
    assert (leader.state, standby.state) == ("leading", "standby")
    assert not has_joined(leader, "box-a")  # that is `local`
    finish(fleet)


def run_on_the_leader(fleet: Fleet) -> tuple[Member, Member]:
    """Return a leader whose own machine runs four units, and a standby."""
    first = fleet.up_machine("box-a")
    until(lambda: first.state == "leading")
    fleet.run("add", fleet.plan(RUN, UNITS, head='hosts = ["box-a"]\n'), env=first.env)
    until(lambda: len(fleet.lines("starts")) == 4)
    return first, fleet.up_machine("box-b")


def test_sessions_of_a_killed_leader_run_on_until_a_standby_of_its_machine_serves_them(fleet: Fleet) -> None:
    first, second = run_on_the_leader(fleet)

    first.process.kill()
    until(lambda: second.state == "leading")
    assert second.status()["units"]["running"] == 4
    why = second.http.get("/v1/units/docs/u0/why").json()
    assert why["detail"] == "its session was started on box-a, and box-a does not answer: it may still run"
    fleet.up_machine("box-a")

    until(lambda: has_joined(second, "box-a"))
    finish(fleet)


def test_a_leader_that_lost_the_lead_serves_its_sessions_as_a_worker(fleet: Fleet) -> None:
    first, second = run_on_the_leader(fleet)

    first.signal(signal.SIGSTOP)
    until(lambda: second.state == "leading")
    first.signal(signal.SIGCONT)

    until(lambda: has_joined(second, "box-a"))
    assert first.state == "standby"
    finish(fleet)


def test_a_standby_that_takes_the_lead_keeps_what_it_ran_as_a_worker(fleet: Fleet) -> None:
    first = fleet.up_machine("box-a")
    until(lambda: first.state == "leading")
    second = fleet.up_machine("box-b")
    until(lambda: has_joined(first, "box-b"))
    fleet.run("add", fleet.plan(RUN, UNITS), env=first.env)
    until(lambda: len(fleet.lines("starts")) == 4)
    assert machines(fleet) == {"box-a", "box-b"}

    first.process.kill()
    until(lambda: second.state == "leading")
    running = {each["id"]: each["host"] for each in second.http.get("/v1/units?state=running").json()["units"]}
    assert sorted(Counter(str(host) for host in running.values())) == ["None", "box-a"]
    again = fleet.up_machine("box-a")

    until(lambda: has_joined(second, "box-a"))
    finish(fleet)
    assert (again.state, second.state) == ("standby", "leading")


def test_leaders_that_are_killed_in_turn_lose_and_double_no_unit(fleet: Fleet) -> None:
    members = {name: fleet.up_machine(name) for name in ("box-a", "box-b", "box-c")}
    leader = fleet.wait_for_leader()
    fleet.run("add", fleet.plan(RUN.replace("until [ -e go ]; do sleep 0.1; done", "sleep 8"), UNITS), env=leader.env)

    for _ in range(2):
        until(lambda: fleet.lines("starts"))
        (name,) = [name for name, member in members.items() if member is leader]
        leader.process.kill()
        leader = fleet.wait_for_leader(other_than=leader)
        members[name] = fleet.up_machine(name)

    finish(fleet)
