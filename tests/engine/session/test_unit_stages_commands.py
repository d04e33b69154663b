"""The commands of a plan as real processes: what is kept of their output."""

from pathlib import Path

import msgspec
import pytest

from paceline.core import Ticket
from paceline.engine.session.live_session import Attempt
from paceline.engine.session.unit_stages import command_order, read_end
from paceline.executors.interface import TAIL_BYTES
from paceline.executors.process import ProcessExecutor
from paceline.store import Campaign, Unit, UnitSpec

CAMPAIGN = Campaign(name="night", command=("work",), check_timeout=60.0)
UNIT = Unit(id="night/u0", campaign="night", spec=UnitSpec(id="u0"), position=0, state="running", attempt_id="a1")


async def output_of(folder: Path, script: str) -> str:
    """Run the script as a check, and return what is kept of its output."""
    executor = ProcessExecutor(str(folder / "spool"))
    try:
        command = ("sh", "-c", script)
        unit = msgspec.structs.replace(UNIT, spec=UnitSpec(id="u0", cwd=str(folder)))
        work = Attempt(unit=unit, campaign=CAMPAIGN, ticket=Ticket("a1", ("sessions",)), stage="check")
        order = command_order(work, command, frozenset())
        handle = executor.start(order.launch({"PATH": "/usr/bin:/bin"}))
        while not handle.state().is_over:
            await executor.wait_ended(10.0)
        end = read_end(handle, 0.0, limit_seconds=60.0)
    finally:
        executor.close()
    assert end is not None
    return end.tail or ""


async def test_the_output_of_a_check_has_both_channels_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    said = await output_of(tmp_path, "echo 2 tests failed; echo deprecated >&2; echo see a.py; exit 1")
    assert said == "2 tests failed\ndeprecated\nsee a.py"


@pytest.mark.parametrize("noisy", [">&2", ""])
async def test_many_warnings_on_one_channel_do_not_hide_the_end_of_the_other(tmp_path: Path, noisy: str) -> None:
    warnings = f"i=0; while [ $i -lt 2000 ]; do echo warning $i {noisy}; i=$((i+1)); done"
    quiet = "" if noisy else ">&2"
    said = await output_of(tmp_path, f"{warnings}; echo FAILED test_a {quiet}; exit 1")
    assert said.endswith("warning 1999\nFAILED test_a")
    assert len(said) <= TAIL_BYTES
