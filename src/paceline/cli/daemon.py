"""`up`: the engine, the HTTP API, the gateway and the page in one process and one loop. And `token`."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvloop

from paceline.agents.account import GatewayAddress
from paceline.api.app import create_app
from paceline.api.context import Site
from paceline.api.server import Served, bind, serve
from paceline.api.tokens import READ_ONLY_FILE, TOKEN_FILE, Tokens, load_token, load_tokens
from paceline.cli.commands.run import SIGNALS, logged
from paceline.cli.output import print_line, say
from paceline.cli.wiring import Home, leading_engine
from paceline.client.daemon_calls import URL_FILE
from paceline.engine.engine import Engine
from paceline.engine.governor_state import save_governor
from paceline.gateway import Gateway, front_door
from paceline.plans.preflight import check_stored

ANYWHERE = ("0.0.0.0", "::", "")
FILES_WANTED = 65_536


def run_daemon(home: Home, *, host: str | None, port: int | None, as_json: bool) -> None:
    """Until a signal asks for the end. Nothing is started unless all of it can be."""
    tokens = load_tokens(home.path)
    check_stored(home.store, home.settings)
    host = home.settings.api.host if host is None else host
    port = home.settings.api.port if port is None else port
    with leading_engine(home) as engine, contextlib.closing(bind(host, port)) as listening, logged(home):
        uvloop.run(_run(home, engine, tokens, host, listening, as_json=as_json))


async def _run(
    home: Home, engine: Engine, tokens: Tokens, host: str, listening: socket.socket, *, as_json: bool
) -> None:
    port = listening.getsockname()[1]
    keys = frozenset(account.key_env for account in home.settings.accounts.values() if account.key_env is not None)
    address = GatewayAddress(server_url(host, port), tokens.full, keys)
    engine.settings = msgspec.structs.replace(engine.settings, gateway=address)
    engine.start()
    running = asyncio.ensure_future(engine.run())
    site = Site(
        engine,
        settings=home.settings,
        spool=home.spool(),
        zone=home.zone,
        environ=home.environ,
        folder=Path.cwd(),
        since=time.time(),
    )
    app = create_app(site, tokens=tokens, host=host)
    gateway = _gateway(home, engine, tokens, host, port)
    door = front_door(gateway, most_connections=_open_files() // 2)
    hurry = asyncio.Event()

    def stop() -> None:
        engine.stop()
        gateway.stop_taking(home.settings.api.drain)

    with _stopped_by_signals(stop, hurry), _found_by_others(home, server_url(host, port)):
        async with serve(app, host, listening=listening, http=door) as served:
            gc.collect()
            gc.freeze()  # what is there now stays: a full collection took 0.1 s of the loop, and takes none of it now
            _tell(served, tokens, as_json=as_json)
            await asyncio.wait({running})
            site.close()
            if gateway.is_stopping:  # else the engine has ended by itself, and nobody counts any more
                await _finish_calls(gateway, hurry, home.settings.api.drain)
            gateway.close()
    await running
    save_governor(home.store, engine.governor)  # with what the last calls have taught


def _gateway(home: Home, engine: Engine, tokens: Tokens, host: str, port: int) -> Gateway:
    """On the same port, in front of the application, with the limits of the engine."""
    own = [f"{name}:{port}" for name in (host, "127.0.0.1", "localhost", "[::1]")]
    others = [name for each in home.settings.api.hosts for name in (each, f"{each}:{port}")]
    return Gateway(
        engine.limiter,
        home.settings.accounts.values(),
        environ=home.environ,
        token=tokens.full,
        clock=engine.clock,
        measures=engine.measures,
        hosts=None if host in ANYWHERE else frozenset((*own, *others)),  # then it has more addresses than are known
    )


def _open_files() -> int:
    """As many as may be had. Clients get half: the engine needs some for sessions, the gateway for upstreams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def _finish_calls(gateway: Gateway, hurry: asyncio.Event, seconds: float) -> None:
    if (calls := len(gateway.live)) and seconds:
        what = "a call that runs" if calls == 1 else f"{calls} calls that run"
        sys.stderr.write(f"Waiting for {what}, up to {seconds:g} s; Ctrl-C again stops now.\n")
    await gateway.finish(hurry)


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], object], hurry: asyncio.Event) -> Iterator[None]:
    """The first one lets what runs finish, the second does not."""
    loop = asyncio.get_running_loop()
    asked: list[signal.Signals] = []

    def heed(number: signal.Signals) -> None:
        asked.append(number)
        if len(asked) == 1:
            stop()
        else:
            loop.remove_signal_handler(number)  # a third one is not waited for at all
            hurry.set()

    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, heed, number)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _found_by_others(home: Home, url: str) -> Iterator[None]:
    """A port that was given or free is in no settings: commands and clients find the daemon by this file."""
    path = home.path / URL_FILE
    path.write_text(f"{url}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _tell(served: Served, tokens: Tokens, *, as_json: bool) -> None:
    url = page_url(served.host, served.port, tokens.full)
    if as_json:
        print_line({"url": url, "pid": os.getpid()})
    else:
        print(f"Paceline is up: {url}", flush=True)


def page_url(host: str, port: int, token: str) -> str:
    """The address that opens the page on this machine."""
    return f"{server_url(host, port)}/?token={token}"


def server_url(host: str, port: int) -> str:
    """The address by which programs on this machine reach the server."""
    name = "127.0.0.1" if host in ANYWHERE else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def show_token(home: Home, *, read_only: bool, as_url: bool) -> None:
    token = load_token(home.path / (READ_ONLY_FILE if read_only else TOKEN_FILE))
    say(f"{_own_url(home)}/?token={token}" if as_url else token)


def _own_url(home: Home) -> str:
    """Where the daemon is, or will be."""
    try:
        return (home.path / URL_FILE).read_text().strip()
    except OSError:
        return server_url(home.settings.api.host, home.settings.api.port)
