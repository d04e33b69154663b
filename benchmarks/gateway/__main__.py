"""The cost of the gateway, compared with a direct connection, a bare aiohttp proxy and LiteLLM in one run.

    make bench-gateway                            installs LiteLLM into an environment of its own, and runs all of it
    python -m benchmarks.gateway                  without LiteLLM where it is not installed
    python -m benchmarks.gateway --quick          a tenth of it
    python -m benchmarks.gateway --before DIR     also the gateway of another checkout, such as a git worktree
    python -m benchmarks.gateway --calls          without streams and memory

Upstream, proxies and clients run in separate processes. Rounds are interleaved and the best of each counts, so that
other load on the machine hits all alike. The table includes processor time per request, the least noisy number.
"""

import argparse
import os
import socket
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.load import Figures
from benchmarks.gateway.processes import Contender, Field

CONNECTIONS = 32
CONCURRENCIES = (1, 4, 16, 64)
LATENCY_SECONDS = 0.02
"""As in public benchmarks of gateways: less than any model takes, so that what a proxy adds is in sight."""
STREAMS = 200
OPEN_STREAMS = 1000
BODY_MEGABYTES = 50


class Sizes(msgspec.Struct, frozen=True):
    rounds: int
    seconds: float
    stream_seconds: float
    flat_requests: int
    open_streams: int


FULL = Sizes(rounds=4, seconds=4.0, stream_seconds=6.0, flat_requests=100_000, open_streams=OPEN_STREAMS)
QUICK = Sizes(rounds=2, seconds=1.0, stream_seconds=2.0, flat_requests=10_000, open_streams=200)


class Rate(msgspec.Struct):
    """The best round of a contender."""

    per_second: float = 0.0
    cpu_microseconds: float = float("inf")
    alone_p50: float = float("inf")
    failed: int = 0


class Latency(msgspec.Struct):
    """The best of each number over all rounds of a contender."""

    per_second: float = 0.0
    p50: float = float("inf")
    p99: float = float("inf")
    failed: int = 0


def measure_rates(contenders: list[Contender], sizes: Sizes) -> dict[str, Rate]:
    rates = {contender.name: Rate() for contender in contenders}
    for contender in contenders:
        contender.load(connections=CONNECTIONS, seconds=0.5)
    for _ in range(sizes.rounds):
        for contender in contenders:
            rate = rates[contender.name]
            before = contender.cpu_seconds
            figures = contender.load(connections=CONNECTIONS, seconds=sizes.seconds)
            cpu = (contender.cpu_seconds - before) / max(1, figures.calls) * 1e6
            alone = contender.load(connections=1, seconds=sizes.seconds / 4)
            rate.per_second = max(rate.per_second, figures.calls / figures.seconds)
            rate.cpu_microseconds = min(rate.cpu_microseconds, cpu)
            rate.alone_p50 = min(rate.alone_p50, alone.p50)
            rate.failed += figures.failed + alone.failed
    return rates


def show_rates(console: Console, field: Field, sizes: Sizes) -> None:
    contenders = [field.direct, field.bare, *field.ways]
    if field.earlier is not None:
        contenders.append(field.earlier)
    if field.litellm is not None:
        contenders += [field.litellm, field.litellm.variant("LiteLLM proxy, pass-through", path="/through")]
    rates = measure_rates(contenders, sizes)
    direct, bare = rates[field.direct.name], rates[field.bare.name]
    table = Table(title=f"small calls, {CONNECTIONS} connections")
    for column in ("", "calls/s", "of direct", "of bare", "CPU µs/call", "p50 alone ms", "added ms", "failed"):
        table.add_column(column, justify="left" if not column else "right")
    for name, rate in rates.items():
        table.add_row(
            name,
            f"{rate.per_second:,.0f}",
            f"{rate.per_second / direct.per_second:.2f}",
            f"{rate.per_second / bare.per_second:.2f}",
            f"{rate.cpu_microseconds:.0f}",
            f"{rate.alone_p50 * 1e3:.3f}",
            f"{(rate.alone_p50 - direct.alone_p50) * 1e3:.3f}",
            str(rate.failed),
        )
    console.print(table)
    if field.earlier is not None:
        before = rates[field.earlier.name]
        for each in field.ways:
            after = rates[each.name]
            calls, cpu = after.per_second / before.per_second, after.cpu_microseconds / before.cpu_microseconds
            console.print(f"{each.name}: {calls:.2f} of the calls before, {cpu:.2f} of the processor time")
    if field.litellm is None:
        console.print("LiteLLM is not installed in .venv-bench and was left out: make bench-gateway")


def measure_latency(contenders: list[Contender], sizes: Sizes) -> dict[tuple[str, int], Latency]:
    best: dict[tuple[str, int], Latency] = {}
    for contender in contenders:
        contender.load(connections=CONCURRENCIES[-1], seconds=0.5)
    for _ in range(sizes.rounds):
        for connections in CONCURRENCIES:
            for contender in contenders:
                figures = contender.load(connections=connections, seconds=sizes.seconds / 2)
                latency = best.setdefault((contender.name, connections), Latency())
                latency.per_second = max(latency.per_second, figures.calls / figures.seconds)
                latency.p50 = min(latency.p50, figures.p50)
                latency.p99 = min(latency.p99, figures.p99)
                latency.failed += figures.failed
    return best


def show_latency(console: Console, field: Field, sizes: Sizes) -> None:
    """Measure as public benchmarks of gateways do: what a proxy adds to an upstream that takes 20 ms."""
    contenders = [field.direct, field.bare, *field.ways]
    contenders += [each for each in (field.earlier, field.litellm) if each is not None]
    best = measure_latency(contenders, sizes)
    table = Table(title=f"an upstream that takes {LATENCY_SECONDS * 1e3:g} ms: calls/s, and p50 / p99 added in ms")
    for column in ("", *(f"{connections} at once" for connections in CONCURRENCIES), "failed"):
        table.add_column(column, justify="left" if not column else "right")
    for contender in contenders:
        cells = []
        for connections in CONCURRENCIES:
            direct, own = best[field.direct.name, connections], best[contender.name, connections]
            added = f"  {(own.p50 - direct.p50) * 1e3:.2f} / {(own.p99 - direct.p99) * 1e3:.2f}"
            cells.append(f"{own.per_second:,.0f}{'' if own is direct else added}")
        failed = sum(best[contender.name, connections].failed for connections in CONCURRENCIES)
        table.add_row(contender.name, *cells, str(failed))
    console.print(table)


def show_streams(console: Console, field: Field, sizes: Sizes) -> None:
    table = Table(title=f"{STREAMS} streams of 100 tokens a second: from a token written to the token read")
    for column in ("", "p50 ms", "p99 ms", "added p99 ms", "first byte p50 ms", "failed"):
        table.add_column(column, justify="left" if not column else "right")
    best: dict[str, Figures] = {}
    for _ in range(sizes.rounds):
        for contender in (field.direct, field.bare, field.ours):
            figures = contender.load(connections=STREAMS, stream_seconds=sizes.stream_seconds)
            if contender.name not in best or figures.p99 < best[contender.name].p99:
                best[contender.name] = figures
    direct = best[field.direct.name]
    for name, figures in best.items():
        values = (figures.p50, figures.p99, figures.p99 - direct.p99, figures.first_byte_p50)
        table.add_row(name, *(f"{value * 1e3:.2f}" for value in values), str(figures.failed))
    console.print(table)


def show_memory(console: Console, field: Field, sizes: Sizes) -> None:
    ours = field.ours
    ours.load(connections=CONNECTIONS, calls=2000)
    start = ours.resident_megabytes
    ours.load(connections=CONNECTIONS, calls=sizes.flat_requests)
    flat = ours.resident_megabytes
    ours.forget_peak()
    figures = ours.load(connections=sizes.open_streams, stream_seconds=4.0)
    streaming = ours.peak_megabytes
    ours.forget_peak()
    before = ours.resident_megabytes
    upload(ours, BODY_MEGABYTES * 2**20)
    console.print(f"memory at the start {start:.1f} MB, after {sizes.flat_requests:,} more calls {flat:.1f} MB")
    console.print(f"peak with {sizes.open_streams} open streams {streaming:.1f} MB ({figures.failed} failed)")
    console.print(f"a body of {BODY_MEGABYTES} MB: from {before:.1f} MB to a peak of {ours.peak_megabytes:.1f} MB")


def upload(contender: Contender, size: int) -> None:
    """Make one call with a body of the given size, with the model at its beginning."""
    head = (
        f"POST {contender.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {contender.key}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    body = b'{"model": "gpt-5", "x": "'
    with socket.create_connection(("127.0.0.1", contender.port)) as connection:
        connection.sendall(head.encode() + body)
        piece, left = b"x" * 2**16, size - len(body)
        while left:
            connection.sendall(piece[:left])
            left -= min(left, len(piece))
        answer = connection.recv(65536)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the upload failed: {answer[:200]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--calls", action="store_true", help="small calls only: no streams, and no memory")
    parser.add_argument("--rounds", type=int, help="more rounds, less noise")
    parser.add_argument("--before", type=Path, help="another checkout, whose gateway runs as well")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    if options.rounds is not None:
        sizes = msgspec.structs.replace(sizes, rounds=options.rounds)
    console = Console(width=150)
    before = None if options.before is None else options.before.resolve()
    console.print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    with Field(before=before) as field:
        show_rates(console, field, sizes)
        if not options.calls:
            show_streams(console, field, sizes)
            show_memory(console, field, sizes)
    with Field(latency=LATENCY_SECONDS, before=before) as field:
        show_latency(console, field, sizes)
    console.print(f"load average at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
