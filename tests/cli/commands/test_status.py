"""`status`: the engine, the pool and the next resume."""

import time

import pytest
from tests.cli.conftest import Workspace, park


def test_the_status_tells_the_next_resume(workspace: Workspace) -> None:
    workspace.run("add", workspace.plan("true", "a", "b"))
    park(until=time.time() + 7200)

    status = workspace.run_json("status")

    assert status["pool"] == {"sessions": 4, "running": 0, "waiting": 1, "parked": 1}
    assert status["next_resume_at"] == pytest.approx(time.time() + 7200, abs=60)
    assert "next resume" in workspace.run("status").stdout
