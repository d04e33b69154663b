"""The daemon: engine, HTTP API, gateway and dashboard in one process and one event loop."""

import contextlib
import logging

import uvloop

from paceline.api.server import bind
from paceline.api.tls import check_exposure, load_certificate
from paceline.api.token_registry import join_fleet
from paceline.api.tokens import AccessTokens
from paceline.cli.daemon_address import server_url
from paceline.cli.daemon_server import DaemonServer, Listener
from paceline.cli.fleet_member import FleetMember
from paceline.cli.home_engine import leading_engine
from paceline.cli.log_file import log_to_file
from paceline.cli.wiring import Home
from paceline.engine.engine import Engine
from paceline.engine.governor_state import save_governor
from paceline.engine.store_outage import OUTAGES
from paceline.plans.preflight import check_stored

log = logging.getLogger("paceline.cli")


def run_daemon(home: Home, *, host: str | None, port: int | None, insecure: bool, as_json: bool) -> None:
    """Serve until a stop signal. Everything that can fail is checked before anything is started."""
    tokens = join_fleet(home.store, home.path, [account.name for account in home.settings.accounts.values()])
    check_stored(home.store, home.settings)
    host = home.settings.api.host if host is None else host
    port = home.settings.api.port if port is None else port
    tls = load_certificate(home.settings.api)
    warning = check_exposure(host, tls, insecure=insecure)
    with contextlib.ExitStack() as opened:
        engine = None if home.store.is_shared else opened.enter_context(leading_engine(home))
        listening = opened.enter_context(contextlib.closing(bind(host, port)))
        opened.enter_context(log_to_file(home))
        if warning is not None:
            log.warning("%s", warning)
        port = listening.getsockname()[1]
        url = server_url(host, port, home.settings.api)
        listener = Listener(host=host, port=port, url=url, socket=listening, tls=tls)
        uvloop.run(_run(home, engine, tokens, listener, insecure=insecure, as_json=as_json))


async def _run(
    home: Home, engine: Engine | None, tokens: AccessTokens, listener: Listener, *, insecure: bool, as_json: bool
) -> None:
    """Run the engine of a home of its own, or a member of a fleet."""
    server = DaemonServer(home, tokens, listener)
    if engine is None:
        member = FleetMember(server, insecure=insecure)
        async with contextlib.aclosing(member), server.serving(as_json=as_json):
            await member.run()
        return
    server.begin_term(engine)
    async with server.serving(as_json=as_json):
        await server.run_term()
    with contextlib.suppress(*OUTAGES):
        save_governor(home.store, engine.governor)  # again: the last calls may have taught it something
