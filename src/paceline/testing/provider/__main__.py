"""`python -m paceline.testing.provider`: the fake provider as a process, for demos and programs in any language.

It prints its URL as the first line and one JSON line for each request that ended, until it is told to stop.
"""

import argparse
import asyncio
import signal
from functools import partial
from pathlib import Path

import msgspec

from paceline.errors import InvalidInput
from paceline.simulation.provider.errors import NAMES
from paceline.simulation.provider.fake import LOOPBACK, FakeProvider
from paceline.simulation.provider.scenario import Scenario, Step


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
        epilog="Errors for --script: " + ", ".join(sorted(NAMES)),
    )
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--scenario", type=Path, help="a JSON file with the fields of Scenario")
    parser.add_argument(
        "--script", action="append", default=[], metavar="ERROR[:TIMES]",
        help="what the next requests get; may be repeated; TIMES * = for ever",
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
        telling = asyncio.create_task(_tell_requests(provider))
        await stop.wait()
        telling.cancel()


async def _tell_requests(provider: FakeProvider) -> None:
    """In the order in which they began."""
    told = 0
    while True:
        await provider.until(partial(_has_ended, provider, told))
        print(msgspec.json.encode(provider.requests[told]).decode(), flush=True)
        told += 1


def _has_ended(provider: FakeProvider, index: int) -> bool:
    return len(provider.requests) > index and provider.requests[index].ended_at is not None


if __name__ == "__main__":
    raise SystemExit(main())
