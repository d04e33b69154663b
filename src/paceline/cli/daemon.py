"""The daemon: engine, HTTP API, gateway and dashboard in one process and one event loop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvloop

from paceline.agents.account import GatewayAddress
from paceline.api.app import create_app
from paceline.api.context import ApiContext
from paceline.api.server import bind, serve
from paceline.api.tls import ServerCertificate, check_exposure, load_certificate
from paceline.api.token_registry import join_fleet
from paceline.api.tokens import AccessTokens
from paceline.cli.daemon_address import ALL_INTERFACES, dashboard_url, server_url
from paceline.cli.log_file import log_to_file
from paceline.cli.output import print_line
from paceline.cli.stop_signals import on_stop_signals
from paceline.cli.wiring import Home, leading_engine
from paceline.client.daemon_calls import URL_FILE
from paceline.detect import compile_patterns
from paceline.engine.engine import Engine
from paceline.engine.garbage import collect_seldom
from paceline.engine.governor_state import save_governor
from paceline.engine.store_outage import OUTAGES
from paceline.gateway import Gateway, RequestAccess, make_server_protocol
from paceline.plans.preflight import check_stored

log = logging.getLogger("paceline.cli")

FILES_WANTED = 65_536
"""Open files: a connection of a client and one to its upstream each need one, for tens of thousands of calls."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Where the daemon is served. `url` is how programs on this machine reach it."""

    host: str
    port: int
    url: str
    socket: socket.socket
    tls: ServerCertificate | None


def run_daemon(home: Home, *, host: str | None, port: int | None, insecure: bool, as_json: bool) -> None:
    """Serve until a stop signal. Everything that can fail is checked before anything is started."""
    tokens = join_fleet(home.store, home.path)
    check_stored(home.store, home.settings)
    host = home.settings.api.host if host is None else host
    port = home.settings.api.port if port is None else port
    tls = load_certificate(home.settings.api)
    warning = check_exposure(host, tls, insecure=insecure)
    with leading_engine(home) as engine, contextlib.closing(bind(host, port)) as listening, log_to_file(home):
        if warning is not None:
            log.warning("%s", warning)
        port = listening.getsockname()[1]
        url = server_url(host, port, home.settings.api)
        listener = Listener(host=host, port=port, url=url, socket=listening, tls=tls)
        uvloop.run(_run(home, engine, tokens, listener, as_json=as_json))


async def _run(home: Home, engine: Engine, tokens: AccessTokens, listener: Listener, *, as_json: bool) -> None:
    host = listener.host
    engine.start(gateway=GatewayAddress(listener.url, tokens.full))
    running = asyncio.ensure_future(engine.run())
    leader = home.engine_leader()
    assert leader is not None  # this process holds its lock
    context = ApiContext(
        engine,
        settings=home.settings,
        spool=home.spool(),
        zone=home.zone,
        environ=home.environ,
        folder=Path.cwd(),
        since=leader.since,
    )
    app = create_app(context, tokens=tokens, host=host)
    gateway = _gateway(home, engine, tokens, listener)
    protocol = make_server_protocol(gateway, most_connections=_open_files() // 2)
    hurry = asyncio.Event()

    def stop() -> None:
        engine.stop()
        gateway.stop_accepting(home.settings.api.drain)

    with on_stop_signals(_stop_handler(stop, hurry)), _url_file(home, listener.url):
        async with serve(app, host, listening=listener.socket, http=protocol, tls=listener.tls):
            compile_patterns()
            collect_seldom()
            _print_ready(listener, tokens, as_json=as_json)
            await asyncio.wait({running})
            context.close()
            if gateway.is_stopping:  # else the engine ended by itself, and nothing counts slots any more
                await _finish_calls(gateway, hurry, home.settings.api.drain)
            gateway.close()
    await running
    with contextlib.suppress(*OUTAGES):
        save_governor(home.store, engine.governor)  # again: the last calls may have taught it something


def _gateway(home: Home, engine: Engine, tokens: AccessTokens, listener: Listener) -> Gateway:
    """Return the gateway. It listens on the same port, in front of the application, and uses the engine's limits."""
    host, port = listener.host, listener.port
    own = [f"{name}:{port}" for name in (host, "127.0.0.1", "localhost", "[::1]")]
    others = [name for each in home.settings.api.hosts for name in (each, f"{each}:{port}")]
    # A server on all addresses has more names than are known here.
    hosts = None if host in ALL_INTERFACES else frozenset((*own, *others))
    access = RequestAccess(
        home.settings.accounts.values(),
        token=tokens.full,
        environ=home.environ,
        hosts=hosts,
        is_token=tokens.has_full_rights,
    )
    return Gateway(engine.limiter, access, clock=engine.clock, metrics=engine.metrics)


def _open_files() -> int:
    """Raise the limit of open files as far as allowed, and return it.

    Clients get half of it: the engine needs the rest for sessions, the gateway for upstream connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def _finish_calls(gateway: Gateway, hurry: asyncio.Event, seconds: float) -> None:
    if (calls := len(gateway.live)) and seconds:
        what = "a running call" if calls == 1 else f"{calls} running calls"
        sys.stderr.write(f"Waiting for {what}, up to {seconds:g} s; Ctrl-C again stops now.\n")
    await gateway.drain(hurry)


def _stop_handler(stop: Callable[[], object], hurry: asyncio.Event) -> Callable[[signal.Signals], None]:
    """Return a handler for stop signals. The first one lets running calls finish, the second ends them."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def handle(number: signal.Signals) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        else:
            loop.remove_signal_handler(number)  # a third one ends the process at once
            hurry.set()

    return handle


@contextlib.contextmanager
def _url_file(home: Home, url: str) -> Iterator[None]:
    """Write the address to a file, where commands and clients find it: the port may differ from the settings."""
    path = home.path / URL_FILE
    path.write_text(f"{url}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _print_ready(listener: Listener, tokens: AccessTokens, *, as_json: bool) -> None:
    url = dashboard_url(listener.url, tokens.full)
    if as_json:
        print_line({"url": url, "pid": os.getpid()})
    else:
        print(f"Paceline is up: {url}", flush=True)
