"""The machines of these tests are apart from each other, can be cut off and killed, and leave nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.machines import MachineNetwork, machines, run
from tests.fleet import ROOT, until

pytestmark = pytest.mark.cluster


def reaches(network: MachineNetwork, source: str, target: str) -> bool:
    probe = f"import socket; socket.create_connection(({network[target].address!r}, 7), 1)"
    done = subprocess.run(network[source].inside([sys.executable, "-c", probe]), capture_output=True, check=False)
    return b"refused" in done.stderr  # a machine without a service there says so; one that is cut off does not


def test_a_machine_that_is_cut_off_reaches_nobody_until_it_is_mended(tmp_path: Path) -> None:
    with machines(tmp_path, "box1", "box2") as network:
        assert network["box1"].run("hostname") == "box1\n"
        assert reaches(network, "box1", "box2")
        network["box2"].cut()
        assert not reaches(network, "box1", "box2")
        network["box2"].mend()
        until(lambda: reaches(network, "box1", "box2"))


def test_a_killed_machine_takes_all_its_processes_with_it_and_can_boot_again(tmp_path: Path) -> None:
    with machines(tmp_path, "box1") as network:
        box = network["box1"]
        box.run("sh", "-c", "setsid sleep 12345 >/dev/null 2>&1 & exit 0")
        (sleeper,) = box.pids("sleep 12345")
        box.kill()
        assert not Path(f"/proc/{sleeper}").exists()
        box.start()
        assert box.pids("sleep 12345") == []
    assert "box1" not in run("ip", "netns", "list")


def test_a_killed_test_leaves_no_process_behind(tmp_path: Path) -> None:
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom tests.cluster.machines import machines\n"
        f"with machines(Path({str(tmp_path)!r}), 'lone') as network:\n"
        "    network['lone'].run('sh', '-c', 'setsid sleep 54321 >/dev/null 2>&1 & exit 0')\n"
        "    print(*network['lone'].pids('sleep 54321'), flush=True)\n    signal.pause()\n"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert killed.stdout is not None
    sleeper = int(killed.stdout.readline())
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    until(lambda: not Path(f"/proc/{sleeper}").exists())
    with machines(tmp_path, "box1"):
        assert "lone" not in run("ip", "netns", "list")
