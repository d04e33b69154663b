"""The cost of a supervised session, compared with a bare child process.

    python -m benchmarks.launch                 the table
    python -m benchmarks.launch --sessions 50   with fewer sessions at once

Launches of both kinds take turns, so that both meet the same load of the machine. The first output is that of
`echo`. For a supervised session it counts when it can be read from the spool, as the engine reads it.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from paceline.detect import StreamReader
from paceline.executors.interface import Launch
from paceline.executors.process import ProcessExecutor, ProcessHandle

ROUNDS = 60
HEARTBEATS = 10
LINE = '{"type":"assistant","message":{"content":[{"type":"text","text":"working"}]}}'


def launch(attempt: str, script: str) -> Launch:
    return Launch(attempt_id=attempt, argv=("sh", "-c", script), env=dict(os.environ), cwd="/tmp")


def plain_seconds() -> float:
    begun = time.perf_counter()
    with subprocess.Popen(["sh", "-c", "echo hi"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        return time.perf_counter() - begun


def supervised_seconds(executor: ProcessExecutor, attempt: str) -> tuple[float, float]:
    """Return the seconds until `start` returns, and until the first output can be read."""
    begun = time.perf_counter()
    handle = executor.start(launch(attempt, "echo hi"))
    returned = time.perf_counter() - begun
    while not handle.read_new("stdout"):
        time.sleep(0.0002)
    seconds = time.perf_counter() - begun
    while not handle.state().is_over:
        time.sleep(0.0005)
    executor.take_ended()
    return returned, seconds


def measure_launch(executor: ProcessExecutor) -> None:
    plain, supervised, returned = [], [], []
    for number in range(ROUNDS + 3):
        bare = plain_seconds()
        back, first = supervised_seconds(executor, f"launch-{number}")
        if number >= 3:  # the first few fill caches
            plain.append(bare)
            supervised.append(first)
            returned.append(back)
    p50, s50 = statistics.median(plain), statistics.median(supervised)
    p95, s95 = statistics.quantiles(plain, n=20)[-1], statistics.quantiles(supervised, n=20)[-1]
    print(f"{'launch to first output':34}{'median':>10}{'p95':>10}")
    print(f"{'  plain child':34}{p50 * 1e3:8.1f}ms{p95 * 1e3:8.1f}ms")
    print(f"{'  supervised':34}{s50 * 1e3:8.1f}ms{s95 * 1e3:8.1f}ms")
    print(
        f"{'  overhead (at most 60 ms)':34}{(s50 - p50) * 1e3:8.1f}ms{(s95 - p95) * 1e3:8.1f}ms   {s50 / p50:.1f} times"
    )
    print(f"{'  the engine is held up for':34}{statistics.median(returned) * 1e3:8.2f}ms")


def memory_mb(pid: int, field: str) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field)) / 1024


def supervisor_pid(handle: ProcessHandle) -> int:
    agent = handle.state().pid
    return int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])


async def measure_many(executor: ProcessExecutor, count: int) -> None:
    script = f"while true; do echo '{LINE}'; sleep 1; done"
    begun = time.perf_counter()
    handles = [executor.start(launch(f"many-{number}", script)) for number in range(count)]
    started = time.perf_counter() - begun
    while any(handle.state().pid is None for handle in handles):
        await executor.wait_ended(0.02)
    running = time.perf_counter() - begun
    pids = [supervisor_pid(handle) for handle in handles]
    rss = statistics.median(memory_mb(pid, "Rss:") for pid in pids)
    pss = statistics.median(memory_mb(pid, "Pss:") for pid in pids)
    readers = [StreamReader("claude-code") for _ in handles]
    share = await polling_share(executor, handles, readers)
    stopping = time.perf_counter()
    for handle in handles:
        executor.stop(handle, grace=5)
    left = count
    while left:
        left -= len(await executor.wait_ended(5))
    stopped = time.perf_counter() - stopping
    print(f"{f'{count} sessions at once':34}")
    print(f"{'  starting them, engine held up':34}{started * 1e3:8.0f}ms   all running after {running:.2f} s")
    print(f"{'  memory of a supervisor (< 12)':34}{rss:8.1f}MB   of its own {pss:.1f} MB")
    print(f"{'  engine, a line a second from each':34}{share * 100:8.2f}%    of one core (at most 10%)")
    print(f"{'  stopping them all':34}{stopped * 1e3:8.0f}ms")


async def polling_share(executor: ProcessExecutor, handles: list[ProcessHandle], readers: list[StreamReader]) -> float:
    """Return the share of a core used by heartbeats that poll every session and read its new output."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(HEARTBEATS):
        await executor.wait_ended(1.0)
        for handle, reader in zip(handles, readers, strict=True):
            for channel in handle.channels:
                if data := handle.read_new(channel):
                    reader.feed(data, channel=channel, seen_at=time.time())
            handle.state()
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as spool:
        executor = ProcessExecutor(spool)
        measure_launch(executor)
        asyncio.run(measure_many(executor, options.sessions))
        executor.close()


if __name__ == "__main__":
    main()
