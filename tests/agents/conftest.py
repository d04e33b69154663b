"""Tests with the marker `agents` or `openclaw` run real CLIs: each in a network that has nothing but loopback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.fake_machine import FakeMachine

ROOT = Path(__file__).resolve().parents[2]
INSIDE = "INSIDE_PACELINE_TEST"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs the test again where there is no network; what happens there is what happens here."""
    marker = next(filter(pyfuncitem.get_closest_marker, ("agents", "openclaw")), None)
    if marker is None or INSIDE in os.environ:
        return None
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = ["unshare", *as_root, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    test = [sys.executable, "-m", "pytest", "-m", marker, "-p", "no:cacheprovider", pyfuncitem.nodeid]
    ran = subprocess.run(
        [*inside, *test], cwd=ROOT, env=os.environ | {INSIDE: "1"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return True


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)
