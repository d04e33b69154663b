"""Orders while the store fails: one that was answered with 503 is never carried out, one that was not always is."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.daemon import Daemon

from paceline.core import GovernorSettings
from paceline.engine.capacity.governor_state import load_governor

COMMANDS = "BEFORE INSERT ON events WHEN instr(CAST(new.body AS TEXT), '\"control.') > 0"
STATES = "BEFORE INSERT ON states"
FAILED = {"name": "docs", "command": ["false"], "max_attempts": 1}
ORDERS = [
    ("POST", "/v1/campaigns", {"campaign": {"name": "docs", "command": ["true"]}, "unit": [{"id": "c"}]}),
    ("POST", "/v1/campaigns/docs/pause", None),
    ("POST", "/v1/campaigns/docs/cancel", None),
    ("POST", "/v1/campaigns/docs/retry", None),
    ("PATCH", "/v1/campaigns/docs", {"priority": 5}),
    ("DELETE", "/v1/campaigns/docs", None),
    ("POST", "/v1/pause", None),
    ("PUT", "/concurrency/limits/campaign:docs", {"limit": 3}),
    ("PUT", "/concurrency/limits/acme", {"limit": 3}),
    ("DELETE", "/concurrency/limits/acme", None),
    ("PUT", "/concurrency/cooldown/acme", {"cooldownMs": 50}),
    ("POST", "/concurrency/restore/acme", None),
    ("PUT", "/v1/pool", {"sessions": 9}),
]


@contextmanager
def failing(daemon: Daemon, writes: str) -> Iterator[None]:
    """These writes fail, in whatever transaction they are."""
    with closing(sqlite3.connect(str(daemon.home.settings.sqlite_path), isolation_level=None)) as other:
        other.execute(f"CREATE TRIGGER fails {writes} BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END")
        yield
        other.execute("DROP TRIGGER fails")


async def seen(daemon: Daemon) -> tuple[object, ...]:
    """All that an order could have changed."""
    governor = daemon.engine.governor
    units = [(unit.id, unit.state) for unit in daemon.store.units().units]
    scopes = (await daemon.get("/concurrency/status"))["providers"]
    return daemon.store.campaigns(), units, governor.limits(), governor.cooldowns(), scopes


async def one_pass(daemon: Daemon) -> None:
    passes = daemon.engine.metrics.pass_seconds.count
    daemon.engine.wake()
    await daemon.until(lambda: daemon.engine.metrics.pass_seconds.count > passes)


@pytest.mark.parametrize(("method", "path", "body"), ORDERS)
async def test_an_order_that_got_a_503_is_not_carried_out(daemon: Daemon, method: str, path: str, body: object) -> None:
    await daemon.ask("POST", "/v1/campaigns", {"campaign": FAILED, "unit": [{"id": "a"}]}, code=201)
    daemon.add("long", "sleep 600", "b")
    await daemon.until(lambda: daemon.counts("docs").quarantined == daemon.counts("long").running == 1)
    await daemon.ask("PUT", "/concurrency/limits/acme", {"limit": 2})
    await one_pass(daemon)
    before = await seen(daemon)

    with failing(daemon, COMMANDS):
        await daemon.ask(method, path, body, code=503)
    await one_pass(daemon)

    assert await seen(daemon) == before


async def test_an_order_that_is_stored_stands_also_where_what_it_changes_cannot_be_stored_yet(daemon: Daemon) -> None:
    with failing(daemon, STATES):
        answer = await daemon.ask("PUT", "/concurrency/limits/acme", {"limit": 3})
    await one_pass(daemon)

    kept = load_governor(daemon.store, GovernorSettings(), daemon.context.now)
    assert answer == {"providerId": "acme", "limit": 3}
    assert (daemon.engine.governor.get_limit("acme"), kept.get_limit("acme")) == (3, 3)
