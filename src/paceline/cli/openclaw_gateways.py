"""The check of the gateways of OpenClaw that accounts name: does each answer, and does it let Paceline in?"""

from collections.abc import Iterator, Mapping

from paceline.cli.findings import Finding
from paceline.executors.openclaw_child import GatewayDown, SpawnRefused, ToolGateway, gateway_of
from paceline.settings import Settings

PROVIDER = "openclaw-gateway"
TOKEN = "OPENCLAW_GATEWAY_TOKEN"
_SECONDS = 20.0
"""For one answer. A gateway that starts may need longer, and is reported as down."""
_NO_TASK = "did not understand sessions_spawn"
"""How a gateway answers that offers the tool, and misses a task."""


def examine_openclaw(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the gateway of each account, and the usual one if its token is set."""
    accounts = [account for account in settings.accounts.values() if account.provider == PROVIDER]
    for account in accounts:
        own = {} if account.key_env is None else {TOKEN: environ.get(account.key_env, "")}
        yield _examine(account.id, gateway_of({**environ, **account.env, **own}))
    if not accounts and environ.get(TOKEN):
        yield _examine(PROVIDER, gateway_of(environ))


def _examine(what: str, gateway: ToolGateway) -> Finding:
    try:
        gateway.invoke("subagents", _SECONDS, action="list")
        gateway.invoke("sessions_spawn", _SECONDS)
    except GatewayDown as down:
        fix = "start it: openclaw gateway run"
        return Finding(what=what, verdict="wrong", detail=str(down), fix=fix)
    except SpawnRefused as refused:
        if _NO_TASK not in str(refused):
            detail, _, fix = str(refused).rpartition(": ")
            return Finding(what=what, verdict="wrong", detail=detail, fix=fix)
    return Finding(what=what, verdict="ok", detail=f"the gateway of OpenClaw at {gateway.url} accepts sub-agents")
