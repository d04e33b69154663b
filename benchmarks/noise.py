"""How long `/healthz` takes while sessions write 10 MB of errors to stderr, beside the same without the noise.

    python -m benchmarks.noise                  one session at a time
    python -m benchmarks.noise --sessions 4     four at once, 10 MB each
    nice -n -10 python -m benchmarks.noise      on a busy machine, as root

The server is a real `paceline up` with real supervisors and sessions; `claude` is a program of that name. One
connection asks every 20 ms, from the launch of the sessions until their units are stored as done. Rounds with noise and
without it take turns, so that both meet the same load of the machine. `longest alone` is how late this process itself
woke up from a sleep: what the machine adds.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.api_slots import Connection, percentile
from benchmarks.stream import stderr_cases
from paceline.store import SqliteStore

SIZE = 10_000_000
ASK_SECONDS = 0.020
TARGET_SECONDS = 0.100
LOOK_SECONDS = 0.2
KINDS = ("the same error", "errors with numbers", "errors of any words", "stack traces", "JSON log")
AGENTS = ("command", "claude")


class Waits(msgspec.Struct, frozen=True):
    """What one round took, in seconds. `answers` are sorted."""

    answers: list[float]
    longest_alone: float
    seconds: float


def write_programs(folder: Path) -> None:
    """Write the noise, and a CLI that runs its prompt as a line of shell with its output on stderr."""
    noise = stderr_cases(SIZE)
    for number, kind in enumerate(KINDS):
        (folder / f"noise-{number}").write_bytes(noise[kind][:SIZE])
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    result = '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s"}'
    program.write_text(f'#!/bin/sh\nread -r line\neval "$line" >&2\necho {shlex.quote(result)}\n')
    program.chmod(0o755)


def campaign_name(agent: str, number: int, *, is_noisy: bool) -> str:
    return f"{agent}-{number}-{'noisy' if is_noisy else 'quiet'}"


def write_settings(folder: Path, sessions: int) -> None:
    """Give each campaign of an agent an account of its own: after the noise of one its provider seems to refuse it."""
    lines = [f"[pool]\nsessions = {sessions}"]
    for number in range(len(KINDS)):
        for is_noisy in (False, True):
            name = campaign_name("claude", number, is_noisy=is_noisy)
            (folder / name).mkdir()
            login = f'env = {{ CLAUDE_CONFIG_DIR = "{folder / name}" }}'
            lines.append(f'[accounts.{name}]\nprovider = "anthropic"\nkind = "subscription"\n{login}')
    (folder / "paceline.toml").write_text("\n".join(lines))


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator[tuple[int, str]]:
    """Run `paceline up`. Yields its port and its token."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environ = {"HOME": str(folder), "PATH": path, "PACELINE_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "paceline", "up", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = urlsplit(json.loads(server.stdout.readline())["url"])
        assert url.port is not None
        try:
            yield url.port, (url.query or url.fragment).rpartition("=")[2]
        finally:
            server.terminate()


async def add(connection: Connection, name: str, agent: str, script: str, sessions: int) -> None:
    """Add a campaign of this many sessions that run a line of shell with its output on stderr."""
    campaign: dict[str, object] = {"name": name, "agent": agent}
    if agent == "command":
        campaign["command"] = ["sh", "-c", f"{script} >&2"]
    else:
        campaign["accounts"] = [name]
    units = [{"id": f"u{number}", "prompt": script} for number in range(sessions)]
    status, answer = await connection.ask(
        b"POST /v1/campaigns", msgspec.json.encode({"campaign": campaign, "unit": units})
    )
    assert status == 201, answer


async def wait_done(store: SqliteStore, name: str, sessions: int) -> None:
    while True:
        counts = store.counts().get(name)
        if counts is not None and counts.done == sessions:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def ask_until(over: "asyncio.Task[None]", connection: Connection) -> Waits:
    """Ask again and again until the task is over."""
    answers: list[float] = []
    longest_alone, started = 0.0, time.perf_counter()
    while not over.done():
        begun = time.perf_counter()
        await connection.empty()
        answers.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await asyncio.sleep(ASK_SECONDS)
        longest_alone = max(longest_alone, time.perf_counter() - begun - ASK_SECONDS)
    over.result()
    return Waits(sorted(answers), longest_alone, time.perf_counter() - started)


async def measure(folder: Path, port: int, token: str, sessions: int) -> bool:
    """Print a row per round. Returns whether no answer to a noisy round took longer than the target."""
    connection = Connection(*(await asyncio.open_connection("127.0.0.1", port)), token)
    store = SqliteStore(folder / "home" / "paceline.db")
    seconds, met = 3.0, True
    for number, kind in enumerate(KINDS):
        for agent in AGENTS:
            for is_noisy in (False, True):
                name = campaign_name(agent, number, is_noisy=is_noisy)
                script = f"cat {folder}/noise-{number}" if is_noisy else f"sleep {seconds:.1f}"
                await add(connection, name, agent, script, sessions)
                waits = await ask_until(asyncio.create_task(wait_done(store, name, sessions)), connection)
                tell(agent, kind if is_noisy else "nothing", waits)
                if is_noisy:
                    seconds, met = waits.seconds, met and waits.answers[-1] < TARGET_SECONDS
    await connection.close()
    store.close()
    return met


def tell(agent: str, kind: str, waits: Waits) -> None:
    middle, late = (percentile(waits.answers, percent) * 1000 for percent in (50, 99))
    print(
        f"{agent:9}{kind:22}{waits.seconds:6.1f}{len(waits.answers):7}{middle:8.1f}{late:8.1f}"
        f"{waits.answers[-1] * 1000:8.1f}{waits.longest_alone * 1000:16.1f}{os.getloadavg()[0]:7.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1, help="how many sessions write at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_programs(folder)
        write_settings(folder, given.sessions)
        with daemon(folder) as (port, token):
            print(f"/healthz every {ASK_SECONDS * 1000:.0f} ms, {given.sessions} sessions of {SIZE / 1e6:.0f} MB; ms")
            print(
                f"{'agent':9}{'stderr':22}{'s':>6}{'asked':>7}{'p50':>8}{'p99':>8}{'max':>8}"
                f"{'longest alone':>16}{'load':>7}"
            )
            met = uvloop.run(measure(folder, port, token, given.sessions))
    print(f"never over {TARGET_SECONDS * 1000:.0f} ms while sessions wrote: {'yes' if met else 'NO'}")


if __name__ == "__main__":
    main()
