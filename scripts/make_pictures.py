#!/usr/bin/env python3
"""Makes the picture of the README: runs the demo and stores one frame of it as SVG.

    python scripts/make_pictures.py

In that frame the quota window is spent, and all sessions are parked with a countdown. Takes half a minute.
"""

import asyncio
import io
import re
from pathlib import Path

from rich.console import Console

from paceline.cli.commands.run import LiveView
from paceline.cli.demo import CAMPAIGNS, Demo, DemoPlan, open_demo
from paceline.daemon.process import LastWarnings

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
WIDTH = 100
SECONDS_AFTER_THE_CLOSING = 2.5


async def main() -> None:
    async with open_demo(DemoPlan()) as demo:
        playing = asyncio.create_task(demo.engine.run(until_idle=True))
        await demo.provider.until(lambda: demo.provider.rate_limited > 1)  # the first one is only a short wait
        await asyncio.sleep(SECONDS_AFTER_THE_CLOSING)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(picture(demo), encoding="utf-8")
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    print(f"wrote {PICTURE.name}")


def picture(demo: Demo) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    view = LiveView(demo.home, list(CAMPAIGNS), 0, LastWarnings(demo.home.zone))
    view.hint = f"the dashboard: {demo.url.partition('/?')[0]}"
    console.print(view.screen())
    svg = console.export_svg(title="make demo", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # a picture must not load fonts from elsewhere


if __name__ == "__main__":
    asyncio.run(main())
