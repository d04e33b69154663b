"""Looking in over HTTP: status, overview, campaigns, units, sessions, accounts, windows."""

from tests.api.conftest import Daemon


async def test_an_empty_home(daemon: Daemon) -> None:
    status = await daemon.get("/v1/status")

    assert status["units"] == {"todo": 0, "running": 0, "done": 0, "quarantined": 0, "held": 0, "cancelled": 0}
    assert status["pool"] == {"sessions": 4, "running": 0, "waiting": 0, "parked": 0}
