"""Routes of paths, and the bounds of their cache."""

import json
import tracemalloc

from tests.gateway.gateway_harness import GatewayHarness, account
from tests.gateway.raw_http import RawUpstream, Wire, connect, ok, post

from paceline import Limiter
from paceline.core.signals import RateLimited
from paceline.gateway.routes import MOST_ROUTES, MOST_SERVED, MOST_UNSERVED, ModelNames, Routes
from paceline.metrics import MOST_NAMES, MetricsRegistry
from paceline.testing import VirtualClock


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


# -- Names of models that clients choose: a bound for what they create, and what real models ke --


START = 1_700_000_000.0


def test_ten_thousand_names_that_are_refused_make_a_bounded_number_of_scopes() -> None:
    names, metrics = ModelNames(), MetricsRegistry()
    limiter = Limiter(clock=VirtualClock(START))

    for number in range(10_000):
        scope = names.counted_scope(f"anthropic/work/model-{number}")
        limiter.report(scope, RateLimited(retry_after=5.0))
        metrics.rate_limited.add(scope)

    scopes = [status.scope for status in limiter.statuses() if status.scope.count("/") == 2]
    assert (len(scopes), scopes[-1]) == (MOST_UNSERVED + 1, "anthropic/work/other")
    assert len(metrics.rate_limited.values) == MOST_UNSERVED + 1 <= MOST_NAMES


def test_ten_thousand_names_that_are_served_make_a_bounded_number_of_scopes() -> None:
    names = ModelNames()
    scopes = set()
    for number in range(10_000):
        scopes.add(names.counted_scope(f"vllm/work/model-{number}"))
        names.note_served("vllm", "work", f"model-{number}")

    assert len(scopes) == MOST_SERVED + MOST_UNSERVED + 1


def test_a_real_model_has_its_own_scope_after_its_first_answer_whatever_others_sent_before() -> None:
    names = ModelNames(most_unserved=2)
    for invented in ("a", "b", "c"):
        names.counted_scope(f"anthropic/work/{invented}")

    first = names.counted_scope("anthropic/work/opus-4-6")
    names.note_served("anthropic", "work", "claude-opus-4-6")

    assert (first, names.counted_scope("anthropic/work/opus-4-6")) == (
        "anthropic/work/other",
        "anthropic/work/opus-4-6",
    )
    assert names.counted_scope("anthropic/second/opus-4-6") == "anthropic/second/opus-4-6"


async def test_unknown_models_get_the_providers_answer_and_share_a_scope() -> None:
    unknown = b'{"type": "error", "error": {"type": "not_found_error", "message": "model: nope"}}'
    refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(unknown), unknown)

    async def handle(wire: Wire) -> None:
        while True:
            request = await wire.read_message()
            wire.send(ok() if b"real" in request.body else refusal)

    async with RawUpstream(handle) as upstream, GatewayHarness(account(upstream.url)) as harness:
        harness.gateway.model_names = ModelNames(most_unserved=3)
        async with await connect(harness.port) as client:
            got = []
            for model in (*(f"nope-{number}" for number in range(6)), "real", "real"):
                client.send(post(json.dumps({"model": model}).encode()))
                answer = await client.read_message()
                got.append((answer.status, (answer.header(b"x-paceline-scope") or b"").decode().split("/")[-1]))
        statuses = harness.limiter.statuses()

    assert got == [
        *((404, f"nope-{number}") for number in range(3)),
        *((404, "other") for _ in range(3)),
        (200, "other"),
        (200, "real"),
    ]
    assert [each.scope for each in statuses if each.paused or each.held or each.auto_reduced or each.windows] == []


def test_a_model_that_never_answered_is_known_as_such() -> None:
    names = ModelNames()
    names.counted_scope("anthropic/work/nosuch-9")
    names.counted_scope("anthropic/work/opus-4-6")
    names.note_served("anthropic", "work", "claude-opus-4-6")

    known = ("anthropic/work/nosuch-9", "anthropic/work/opus-4-6", "anthropic/work/haiku-4-5", "anthropic")
    assert [names.is_unserved(each) for each in known] == [True, False, False, False]
