"""The limits of hosts that people add while an engine runs."""

from paceline.core import Governor, GovernorSettings
from paceline.engine.capacity.governor_state import apply_host_limits
from paceline.hosts.messages import HostState
from paceline.settings import HostSettings


def state(name: str, limit: int | None) -> HostState:
    return HostState(name=name, settings=HostSettings(name=name, max_sessions=limit))


def test_an_added_host_runs_no_more_than_its_max_sessions() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    hosts = [state("box1", 3), state("box2", None), state("box3", 5)]
    apply_host_limits(governor, hosts, {}, configured=("box3",), now=0.0)

    assert [governor.get_limit(f"host:{name}") for name in ("box1", "box2", "box3")] == [3, None, None]


def test_a_limit_that_a_person_sets_live_stays_until_the_host_is_changed() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    applied: dict[str, int | None] = {}
    apply_host_limits(governor, [state("box1", 3)], applied, configured=(), now=0.0)
    governor.set_limit("host:box1", 1, now=1.0)
    apply_host_limits(governor, [state("box1", 3)], applied, configured=(), now=2.0)
    live = governor.get_limit("host:box1")
    apply_host_limits(governor, [state("box1", 5)], applied, configured=(), now=3.0)

    assert (live, governor.get_limit("host:box1")) == (1, 5)
