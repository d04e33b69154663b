#!/usr/bin/env python3
"""Makes the pictures of the README from the real thing: plays the demo and keeps one frame of it as SVG.

    python scripts/make_pictures.py

Which frame: the quota window has just reopened and the agents follow in a wave. Takes half a minute.
"""

import asyncio
import io
import re
import time
from pathlib import Path

from rich.console import Console

from paceline.cli.demo.play import Plan, Play, staged
from paceline.cli.demo.view import WIDEST, screen

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
SECONDS_INTO_THE_WAVE = 2.5


async def main() -> None:
    async with staged(Plan()) as play:
        playing = asyncio.create_task(play.run())
        await play.provider.until(lambda: play.ledger.reopenings > 0)
        await asyncio.sleep(SECONDS_INTO_THE_WAVE)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(picture(play), encoding="utf-8")
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    print(f"wrote {PICTURE.name}")


def picture(play: Play) -> str:
    console = Console(record=True, width=WIDEST, file=io.StringIO(), force_terminal=True)
    console.print(screen(play, time.time(), WIDEST))
    svg = console.export_svg(title="make demo", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # a picture must not call home for its letters


if __name__ == "__main__":
    asyncio.run(main())
