"""Keeping workers alive: when a worker is started, how often it is tried, and what people see of it."""

import itertools
import logging
from typing import cast

import pytest

from paceline.errors import InvalidSettings, LaunchFailed
from paceline.hosts.launchers.interface import WorkerStart
from paceline.hosts.launchers.ssh import SshTunnel
from paceline.hosts.leader.worker_supervision import (
    FIRST_RETRY_SECONDS,
    JOIN_SECONDS,
    LONGEST_RETRY_SECONDS,
    RETURN_SECONDS,
    WorkerSupervision,
)
from paceline.hosts.messages import HostState, Presence
from paceline.settings import HostSettings

SSH = HostSettings(name="box1", ssh="user@box1", labels=("gpu",))
START = WorkerStart(
    name="box1",
    connect=("http://127.0.0.1:21000",),
    token="box1.secret",
    labels=("gpu",),
    home="~/.local/state/paceline/workers/box1",
)


class Box:
    """A host, the launcher of its worker, and its tunnel."""

    def __init__(self) -> None:
        self.alive: bool | None = False
        self.failure: Exception | None = None
        self.starts: list[WorkerStart] = []
        self.is_open = False
        self.opened = 0
        self.has_tunnel = False

    def start(self, worker: WorkerStart) -> None:
        if self.failure is not None:
            raise self.failure
        self.starts.append(worker)

    def is_alive(self) -> bool | None:
        if self.failure is not None:
            raise self.failure
        return self.alive

    def stop(self) -> None:
        self.alive = False

    def describe(self) -> str:
        return "ssh user@box1"

    def open(self) -> None:
        if not self.is_open:
            self.is_open = True
            self.opened += 1

    def close(self) -> None:
        self.is_open = False

    # -- as the ways of the leader ---------------------------------------------------------------

    def launcher(self, host: HostSettings) -> "Box":
        return self

    def tunnel(self, host: HostSettings) -> SshTunnel | None:
        return cast(SshTunnel, self) if self.has_tunnel else None

    def addresses(self, host: HostSettings) -> tuple[str, ...]:
        return ("http://127.0.0.1:21000",)

    def token(self, name: str) -> str:
        if isinstance(self.failure, InvalidSettings):
            raise self.failure
        return f"{name}.secret"


class Night:
    """A leader with one host. The test moves its clock."""

    def __init__(self, host: HostSettings = SSH, presence: Presence = "absent") -> None:
        self.now = 1000.0
        self.box = Box()
        self.states = [HostState(name=host.name, settings=host, presence=presence)]
        self.problems: dict[str, str] = {}
        self.care = WorkerSupervision(lambda: self.states, self.problems, self.box, now=lambda: self.now)

    def becomes(self, presence: Presence, host: HostSettings | None = None) -> None:
        self.states = [HostState(name="box1", settings=host or self.states[0].settings, presence=presence)]

    async def after(self, seconds: float) -> None:
        """Let time pass, and let the leader look after its hosts."""
        self.now += seconds
        self.care.look_through()
        await self.care.settle()


async def test_the_worker_of_an_absent_host_is_started_once_and_given_time_to_join() -> None:
    night = Night()

    await night.after(0)
    await night.after(1)
    await night.after(JOIN_SECONDS - 2)

    assert night.box.starts == [START]
    assert night.problems == {}


async def test_a_worker_that_runs_and_does_not_join_is_a_problem_that_people_see() -> None:
    night = Night()
    await night.after(0)
    night.box.alive = True

    await night.after(JOIN_SECONDS)

    assert (
        "box1: its worker runs, but has not joined; it must reach the leader at http://127.0.0.1:21000"
        in (night.problems["box1"])
    )
    night.becomes("joined")
    await night.after(1)
    assert night.problems == {}


async def test_a_joined_host_is_left_alone() -> None:
    night = Night(presence="joined")

    await night.after(0)
    await night.after(3600)

    assert night.box.starts == []


async def test_a_host_that_fails_is_tried_less_and_less_often_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    night = Night()
    night.box.failure = LaunchFailed("host box1: it does not answer; start the machine")
    tries = []
    with caplog.at_level(logging.WARNING, "paceline.daemon"):
        for second in range(1200):
            before = night.care._tended["box1"].tries if night.care._tended else 0
            await night.after(1)
            if night.care._tended["box1"].tries > before:
                tries.append(second)

    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert waits[:4] == [FIRST_RETRY_SECONDS, 10, 20, 40]
    assert max(waits) == LONGEST_RETRY_SECONDS
    assert [record.getMessage() for record in caplog.records] == ["host box1: it does not answer; start the machine"]
    assert night.problems == {"box1": "host box1: it does not answer; start the machine"}

    night.box.failure = None
    night.becomes("joined")
    await night.after(1)
    assert night.problems == {}


async def test_silent_workers_may_first_return_to_a_new_leader_by_themselves() -> None:
    night = Night(presence="silent")

    await night.after(0)
    assert night.box.starts == []

    await night.after(RETURN_SECONDS)
    assert night.box.starts == [START]


@pytest.mark.parametrize(("presence", "starts"), [("silent", 0), ("leaving", 0), ("lost", 1), ("absent", 1)])
async def test_a_worker_that_may_only_be_cut_off_is_not_started_by_a_command(presence: Presence, starts: int) -> None:
    night = Night(HostSettings(name="box1", command=("kubectl", "apply")), presence)
    night.box.alive = None

    await night.after(RETURN_SECONDS)

    assert len(night.box.starts) == starts


async def test_a_tunnel_is_held_open_for_a_joined_worker() -> None:
    night = Night(presence="joined")
    night.box.has_tunnel = True

    await night.after(0)
    assert (night.box.opened, night.box.starts) == (1, [])

    night.box.is_open = False
    await night.after(1)
    assert (night.box.opened, night.box.starts) == (2, [])

    night.care.close()
    assert not night.box.is_open


async def test_a_tunnel_that_breaks_while_a_worker_is_to_join_is_opened_at_once() -> None:
    night = Night()
    night.box.has_tunnel = True
    await night.after(0)
    await night.after(1)
    assert (night.box.opened, len(night.box.starts)) == (1, 1)

    night.box.is_open = False
    await night.after(1)

    assert night.box.opened == 2


async def test_an_allocation_is_checked_while_its_worker_is_there() -> None:
    night = Night(HostSettings(name="box1", slurm={}), presence="joined")

    await night.after(0)
    await night.after(1)
    await night.after(60)

    assert len(night.box.starts) == 2


async def test_a_removed_host_and_changed_settings_are_noticed() -> None:
    night = Night()
    night.box.has_tunnel = True
    night.box.failure = LaunchFailed("host box1: no")
    await night.after(0)
    assert night.problems == {"box1": "host box1: no"}

    night.box.failure = None
    night.becomes("absent", HostSettings(name="box1", ssh="other@box1"))
    await night.after(1)
    assert [start.labels for start in night.box.starts] == [()]
    assert night.problems == {}

    night.states = []
    await night.after(1)
    assert not night.box.is_open
    assert night.care._tended == {}


async def test_a_revoked_token_is_a_problem_and_starts_nothing() -> None:
    night = Night()
    night.box.failure = InvalidSettings("the token was revoked; `paceline hosts token box1 --rotate` makes a new one")

    await night.after(0)

    assert night.problems["box1"].startswith("host box1: the token was revoked; `paceline hosts token box1 --rotate`")
    assert night.box.starts == []


async def test_hosts_that_a_person_starts_are_not_touched() -> None:
    night = Night(HostSettings(name="box1"))

    await night.after(60)

    assert (night.box.starts, night.problems) == ([], {})
