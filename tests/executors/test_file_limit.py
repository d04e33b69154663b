"""The limit of open files is raised for the pool, and a limit that is too low is named before the night."""

import resource
from collections.abc import Iterator

import pytest

from paceline.executors.process import raise_file_limit


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_as_far_as_the_pool_needs(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))

    assert raise_file_limit(80) is None

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (672, limits[1])


def test_a_limit_that_is_high_enough_is_left_alone(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (900, limits[1]))

    assert raise_file_limit(4) is None

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (900, limits[1])


def test_a_pool_that_the_limit_does_not_allow_is_named(limits: tuple[int, int]) -> None:
    pool = limits[1] if limits[1] != resource.RLIM_INFINITY else resource.RLIM_INFINITY
    warning = raise_file_limit(max(pool, 10**7))

    assert (warning is None) == (limits[1] == resource.RLIM_INFINITY)
    assert warning is None or "raise the limit (ulimit -n), or lower the pool" in warning
