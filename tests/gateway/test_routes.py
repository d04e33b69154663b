"""Routes of paths, and the bounds of their cache."""

import tracemalloc

from tests.gateway.gateway_harness import account

from paceline.gateway.routes import MOST_ROUTES, Routes


def test_a_repeated_path_is_resolved_once() -> None:
    routes = Routes([account("http://127.0.0.1:9")])

    assert routes.resolve(b"/gateway/work/v1/messages") is routes.resolve(b"/gateway/work/v1/messages")


def test_long_paths_are_resolved_and_not_cached() -> None:
    routes = Routes([account("http://127.0.0.1:9")])
    tracemalloc.start()
    try:
        for number in range(100):
            path = b"/v1/%d/" % number + b"x" * 50_000
            assert routes.resolve(b"/gateway/work" + path).path == path
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_route_cache_is_bounded() -> None:
    routes = Routes([account("http://127.0.0.1:9")])

    for number in range(2 * MOST_ROUTES):
        routes.resolve(b"/gateway/work/v1/%d" % number)

    assert len(routes._cache) <= MOST_ROUTES
