"""How long a session takes to start through a worker, compared with a bare `ssh host command` and a bare `srun`.

    python -m benchmarks.worker_start              as root: it makes machines in namespaces (scripts/cluster.sh)
    python -m benchmarks.worker_start --rounds 10

Bare starts and sessions take turns, so that both meet the same load of the machine. A start counts from the request
(for a session: from the moment at which the engine has stored it) until the first command on the host has run.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from tests.cli.shell import Shell
from tests.cluster.slurm_cluster import slurm_cluster
from tests.cluster.ssh_servers import ssh_hosts
from tests.fleet import ROOT, until

ROUNDS = 20
PORT = 7599
PATIENCE_SECONDS = 180.0
PYTHON = ROOT / ".venv" / "bin" / "python"
NOW = "date +%s.%N"


@contextmanager
def daemon(shell: Shell, host: str, settings: str, up: Sequence[str] = ()) -> Iterator[httpx.Client]:
    """Run an engine with one host, and wait until its worker is there."""
    local = "[hosts.local]\nmax_sessions = 0\n"
    (shell.folder / "paceline.toml").write_text(f"{local}{settings}")
    process = shell.start("up", "--port", str(PORT), *up)
    assert process.stdout is not None
    token = process.stdout.readline().partition("token=")[2].split()[0]
    with httpx.Client(
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=PATIENCE_SECONDS,
    ) as http:
        try:
            until(lambda: (host, "joined") in presences(http), PATIENCE_SECONDS)
            yield http
        finally:
            process.kill()
            process.communicate()


def presences(http: httpx.Client) -> list[tuple[str, str]]:
    return [(each["name"], each["presence"]) for each in http.get("/v1/hosts").json()["hosts"]]


def session_seconds(shell: Shell, http: httpx.Client, number: int) -> float:
    """Run one unit, and return the seconds from its stored start to its first command."""
    name, place = f"round{number}", shell.folder / f"started-{number}"
    command = ["sh", "-c", f"{NOW} >{place}"]
    plan = f'[campaign]\nname = "{name}"\ncommand = {json.dumps(command)}\n[[unit]]\nid = "u"\n'
    (shell.folder / "plan.toml").write_text(plan)
    shell.run("add", "plan.toml")

    def done() -> dict[str, float] | None:
        (unit,) = http.get("/v1/units", params={"campaign": name}).json()["units"]
        return unit if unit["state"] == "done" else None

    unit = until(done, PATIENCE_SECONDS)
    return float(place.read_text()) - float(unit["started_at"])


def bare_seconds(argv: Sequence[str], env: dict[str, str]) -> float:
    begun = time.time()
    said = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    return float(said) - begun


def compare(name: str, rounds: int, shell: Shell, http: httpx.Client, bare: Sequence[str]) -> None:
    plain, sessions = [], []
    for number in range(rounds + 1):
        one, other = bare_seconds(bare, shell.env), session_seconds(shell, http, number)
        if number:  # the first ones fill caches
            plain.append(one)
            sessions.append(other)
    p50, s50 = statistics.median(plain), statistics.median(sessions)
    print(f"{name:26}{p50 * 1e3:9.0f}ms{s50 * 1e3:12.0f}ms{s50 / p50:10.2f}", flush=True)


def measure_ssh(rounds: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(ssh_hosts(folder, "box1"))
        shell = Shell(folder)
        shell.env["PATH"] = f"{hosts.bin}:{shell.env['PATH']}"
        settings = f'[hosts.box1]\nssh = "box1"\npython = "{PYTHON}"\nhome = "{folder}/worker"\n'
        http = stack.enter_context(daemon(shell, "box1", settings))
        compare("ssh host command", rounds, shell, http, ["ssh", "box1", NOW])


def measure_slurm(rounds: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(slurm_cluster(folder))
        shell, address = Shell(folder), cluster.network.address
        shell.env.update(cluster.env)
        settings = (
            f'[api]\nhosts = ["{address}"]\n[hosts.pilot]\nslurm = {{ time = "1:00:00" }}\npython = "{PYTHON}"\n'
            f'home = "{folder}/worker"\nconnect = "http://{address}:{PORT}"\n'
        )
        http = stack.enter_context(daemon(shell, "pilot", settings, ("--host", "0.0.0.0", "--insecure")))
        compare("srun command", rounds, shell, http, ["srun", "sh", "-c", NOW])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    print(f"{'start of a command':26}{'bare':>11}{'session':>14}{'ratio':>10}", flush=True)
    measure_ssh(rounds)
    measure_slurm(rounds)


if __name__ == "__main__":
    main()
