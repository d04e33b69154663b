"""Runs the demo and shows it: live on a terminal, as plain lines anywhere else."""

import asyncio
import sys
import time

import msgspec
from rich.console import Console
from rich.live import Live

from paceline.cli.demo.play import SCOPE, Plan, Play, staged
from paceline.cli.demo.summary import Figures, figures, rows, summary_table
from paceline.cli.demo.view import screen, why_waiting

FRAMES_PER_SECOND = 8
SECONDS_PER_PLAIN_LINE = 2.0
PLAN = Plan()


def show_demo(*, as_json: bool) -> int:
    """The whole performance; the exit code says whether every call was served."""
    console = Console(quiet=as_json)
    try:
        found = asyncio.run(perform(console, PLAN))
    except TimeoutError:
        print("paceline: the demo did not end in time; please report this", file=sys.stderr)
        return 1
    if as_json:
        print(msgspec.json.encode(found).decode())
    return 1 if found.lost else 0


async def perform(console: Console, plan: Plan) -> Figures:
    """Play it, show it, sum it up. Raises TimeoutError if it hangs, which would be a fault of ours."""
    async with staged(plan) as play:
        showing = asyncio.create_task(_show(console, play))
        try:
            await play.run()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        found = figures(play, time.time())
    if console.is_terminal:
        console.print(summary_table(found))
    else:
        for name, value in rows(found):
            _say(console, f"{name:<16} {value}")
    return found


async def _show(console: Console, play: Play) -> None:
    if console.is_terminal:
        await _show_live(console, play)
    else:
        await _show_lines(console, play)


async def _show_live(console: Console, play: Play) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(screen(play, time.time(), console.width), refresh=True)
                await asyncio.sleep(1 / FRAMES_PER_SECOND)
        finally:
            live.update(screen(play, time.time(), console.width), refresh=True)


async def _show_lines(console: Console, play: Play) -> None:
    told = 0
    try:
        while True:
            told = _tell_news(console, play, told)
            _say(console, state_line(play, time.time()))
            await asyncio.sleep(SECONDS_PER_PLAIN_LINE)
    finally:
        _tell_news(console, play, told)


def _tell_news(console: Console, play: Play, told: int) -> int:
    for line in play.ledger.untold(told):
        _say(console, f"{line.at:5.1f} s  {line.text}")
        told = line.number
    return told


def state_line(play: Play, now: float) -> str:
    """Where things stand, in one line."""
    ledger = play.ledger
    status = play.limiter.scope_status(SCOPE)
    assert status is not None
    reasons = ", ".join(f"{count} {why.reason}" for count, why in why_waiting(play.limiter, ledger))
    places = f"{status.in_flight}/{status.limit} in flight"
    waiting = f"{ledger.waiting} waiting" + (f" ({reasons})" if reasons else "")
    return f"{now - ledger.started_at:5.1f} s  {ledger.done}/{ledger.calls} done, {places}, {waiting}"


def _say(console: Console, text: str) -> None:
    """One whole line, also where the output is a file of no width at all."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
