"""The limits of hosts in the Governor."""

from paceline.core import Governor, GovernorSettings
from paceline.engine.host_limits import HostLimits
from paceline.hosts.host_state import HostState
from paceline.settings import HostSettings


def state(name: str, limit: int | None) -> HostState:
    return HostState(name=name, settings=HostSettings(name=name, max_sessions=limit))


def test_a_host_runs_no_more_than_its_settings_say() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    HostLimits(governor).apply([state("box1", 3), state("box2", None), state("local", 0)], now=0.0)

    assert [governor.get_limit(f"host:{name}") for name in ("box1", "box2", "local")] == [3, None, None]


def test_a_limit_that_a_person_sets_live_stays_until_the_settings_change() -> None:
    governor = Governor(GovernorSettings(), now=0.0)
    limits = HostLimits(governor)
    limits.apply([state("box1", 3)], now=0.0)
    governor.set_limit("host:box1", 1, now=1.0)
    limits.apply([state("box1", 3)], now=2.0)
    live = governor.get_limit("host:box1")
    limits.apply([state("box1", 5)], now=3.0)

    assert (live, governor.get_limit("host:box1")) == (1, 5)
