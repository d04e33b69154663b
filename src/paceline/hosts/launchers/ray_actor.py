"""The part of the Ray launcher that needs Ray. It is run as a script, because Ray may live in another environment.

    python ray_actor.py < REQUEST

The request is JSON on standard input, the answer one line that begins with `MARK`. A detached actor on the node carries
the request out with the Paceline that is there (`detached_worker.py`). The worker is no child of Ray: the end of the
actor, of this script or of Ray itself does not end it. Here: the standard library and Ray alone, for Python 3.9 and
later. Never here: any other import of Paceline.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any

MARK = "paceline-ray: "
NAMESPACE = "paceline"
ACTOR_SECONDS = 100.0
"""How long an actor may take: Ray starts a process for it, and a worker may take twenty seconds to end."""
PROGRAM_SECONDS = 60.0
CONNECT_SECONDS = 10.0
HAS_PACELINE = "import importlib.util, sys; sys.exit(importlib.util.find_spec('paceline') is None)"


class HostAgent:
    """Runs on one node, outlives its driver, and starts the worker of one host outside of Ray's processes."""

    def carry_out(self, request: "dict[str, Any]") -> "dict[str, Any]":
        """Run the request with a Python of this node that has Paceline."""
        with contextlib.suppress(OSError):  # Ray gives its processes low priority, which only root can take back
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        env = login_environment()
        python = request["python"] or find_python([sys.executable, request["leader_python"]], env)
        if python is None or not os.path.exists(os.path.expanduser(python)):
            what = f"{python} is not there" if python else "no Python with Paceline was found there"
            return {"error": f"{what}; install Paceline on the node, and name its Python with `python`"}
        done = subprocess.run(
            [os.path.expanduser(python), "-m", request["module"], request["action"]],
            input=request["order"].encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        said = done.stdout.decode(errors="replace")
        for line in said.splitlines():
            if line.startswith(request["mark"]):
                answer: dict[str, Any] = json.loads(line[len(request["mark"]) :])
                return answer
        return {"error": f"{python} ended with exit code {done.returncode}: {said.strip()[-300:] or 'no output'}"}


def find_python(candidates: "list[str]", env: "dict[str, str]") -> "str | None":
    """Return the first Python that has Paceline."""
    for python in candidates:
        if (
            os.path.exists(python)
            and subprocess.run([python, "-c", HAS_PACELINE], env=env, check=False).returncode == 0
        ):
            return python
    return None


def login_environment() -> "dict[str, str]":
    """Return the environment that Ray was started with on this node.

    Ray hides GPUs and limits threads of its own processes by variables; the sessions of a worker do not belong to it.
    """
    env = dict(os.environ)
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = (item.decode(errors="surrogateescape").partition("=") for item in file.read().split(b"\0") if item)
            env = {name: value for name, _, value in pairs}
    except OSError:
        for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
            env.pop(name, None)
    return {name: value for name, value in env.items() if not name.startswith("RAY_")}


def find_node(nodes: "list[dict[str, Any]]", wanted: str) -> "dict[str, Any]":
    """Return the node with this name, address or id; a live one, if there is one. Raise `ValueError` without any."""
    keys = ("NodeManagerHostname", "NodeManagerAddress", "NodeName", "NodeID")
    found = [node for node in nodes if wanted in (node.get(key) for key in keys)]
    live = [node for node in found if node["Alive"]]
    if len(live) > 1:
        ids = ", ".join(node["NodeID"] for node in live)
        raise ValueError(f"several nodes are called {wanted}; set ray_node to the id of one of them: {ids}")
    if not found:
        names = ", ".join(sorted({node["NodeManagerHostname"] for node in nodes if node["Alive"]}))
        raise ValueError(f"Ray has no node {wanted}; set ray_node to one of its nodes: {names}")
    return (live or found)[-1]


def agent_on(ray: Any, node_id: str, name: str) -> Any:
    """Return the actor of the host on its node. It is made if it is not there."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
    options = {"name": f"{name}-{node_id}", "get_if_exists": True, "lifetime": "detached", "num_cpus": 0}
    return ray.remote(HostAgent).options(scheduling_strategy=strategy, **options).remote()


def refuse_silence(address: str) -> None:
    """Raise `OSError` if nothing answers there. Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {address} ({error}); start Ray, or correct `ray`") from error


def answer_to(request: "dict[str, Any]") -> "dict[str, Any]":
    """Ask the node of the host, if it lives."""
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        return {"error": f"{sys.executable} has no Ray ({error}); set ray_python, or install paceline[ray]"}
    try:
        refuse_silence(request["address"])
        ray.init(address=request["address"], namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        node = find_node(ray.nodes(), request["node"])
        if not node["Alive"]:
            return {"is_node_lost": True}
        for is_last in (False, True):
            try:
                agent = agent_on(ray, node["NodeID"], request["host"])
                answer: dict[str, Any] = ray.get(agent.carry_out.remote(request), timeout=ACTOR_SECONDS)
                return answer
            except ray.exceptions.RayActorError:
                if is_last:  # the first one may have been killed before
                    raise
    except Exception as error:  # noqa: BLE001  # Ray raises many kinds; each is an answer for a person
        return {"error": f"{type(error).__name__}: {error}"[:600]}
    return {}


def main() -> None:
    """Answer one request."""
    # Ray adds the folder of its driver to the path of every process; modules of this folder must not shadow others.
    sys.path = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(os.path.abspath(__file__))]
    answer = answer_to(json.load(sys.stdin))
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)
    os._exit(0)  # Ray takes a second to leave, and what it prints then concerns nobody


if __name__ == "__main__":
    main()
