"""The public path of the fake provider, whose code is in `paceline.simulation.provider`; and the provider as a process.

`python -m paceline.testing.provider` is for demos and programs in any language. It prints its URL on the first line,
then one line of JSON for each request that has ended, until it is stopped.
"""

import argparse
import asyncio
import signal
from functools import partial
from pathlib import Path

import msgspec

from paceline.errors import InvalidInput
from paceline.simulation.provider.errors import NAMES as ERROR_NAMES
from paceline.simulation.provider.fake import LOOPBACK, FakeProvider, RequestRecord
from paceline.simulation.provider.scenario import (
    Burst,
    CapacityChange,
    Episode,
    Limits,
    Penalty,
    Scenario,
    Step,
    ToolCall,
    Window,
)

__all__ = [
    "ERROR_NAMES",
    "Burst",
    "CapacityChange",
    "Episode",
    "FakeProvider",
    "Limits",
    "Penalty",
    "RequestRecord",
    "Scenario",
    "Step",
    "ToolCall",
    "Window",
]


def main() -> int:
    arguments = _parser().parse_args()
    try:
        provider = _provider(arguments)
    except (InvalidInput, OSError, msgspec.MsgspecError, ValueError) as error:
        print(f"cannot use this scenario: {error}")
        return 2
    asyncio.run(_serve(provider))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paceline.testing.provider",
        description="A fake LLM provider on loopback.",
        epilog="Errors for --script: " + ", ".join(sorted(ERROR_NAMES)),
    )
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--scenario", type=Path, help="a JSON file with the fields of Scenario")
    parser.add_argument(
        "--script", action="append", default=[], metavar="ERROR[:TIMES]",
        help="what the next requests get; may be repeated; TIMES * = forever",
    )  # fmt: skip
    return parser


def _provider(arguments: argparse.Namespace) -> FakeProvider:
    scenario = Scenario()
    if arguments.scenario is not None:
        scenario = msgspec.json.decode(arguments.scenario.read_bytes(), type=Scenario)
    provider = FakeProvider(scenario, host=arguments.host, port=arguments.port)
    for line in arguments.script:
        error, _, times = line.partition(":")
        provider.add_step(Step(error=error, times=None if times == "*" else int(times or 1)))
    return provider


async def _serve(provider: FakeProvider) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with provider:
        print(provider.url, flush=True)
        printing = asyncio.create_task(_print_requests(provider))
        await stop.wait()
        printing.cancel()


async def _print_requests(provider: FakeProvider) -> None:
    """Print requests as they end, in the order in which they began."""
    printed = 0
    while True:
        await provider.until(partial(_has_ended, provider, printed))
        print(msgspec.json.encode(provider.requests[printed]).decode(), flush=True)
        printed += 1


def _has_ended(provider: FakeProvider, index: int) -> bool:
    return len(provider.requests) > index and provider.requests[index].ended_at is not None


if __name__ == "__main__":
    raise SystemExit(main())
