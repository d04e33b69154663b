"""A session that ends while the disk is full keeps its end and its last output. It was paid for, and runs once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.executors.conftest import Sandbox, ended, read_all, until
from tests.executors.small_disk import FaultyDisk, SmallDisk, small_disk

from paceline.errors import SpoolError
from paceline.executors.process import ProcessExecutor
from paceline.executors.spool import read_session_status, read_tail
from paceline.executors.spool_writer import KEPT_BYTES, LOCK, RECORD_BYTES

MUCH_BYTES = 3 << 20
"""More than the disk has room for, and more than the faulty disk allows in one file."""


@pytest.fixture(params=[True, False], ids=["mounted", "injected"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk | FaultyDisk]:
    with small_disk(tmp_path / "spool", may_mount=request.param) as disk:
        yield disk


async def test_an_end_on_a_full_disk_is_recorded(
    disk: SmallDisk | FaultyDisk, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"echo out; echo > {ready}; read line < {gate}; exit 3"))
    ready.read_line()
    until(lambda: read_tail(str(sandbox.spool / "a1"), "stdout", 100) == b"out\n")

    disk.fill(sandbox)
    gate.write_line()
    state = await ended(executor, handle)

    assert (state.phase, state.exit_code, state.cause) == ("ended", 3, "exit")
    assert read_all(handle) == b"out\n"


async def test_the_next_engine_finds_an_end_on_a_full_disk(
    disk: SmallDisk | FaultyDisk, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"echo > {ready}; read line < {gate}; exit 3"))
    ready.read_line()
    disk.fill(sandbox)
    gate.write_line()
    state = await ended(executor, handle)

    disk.free(sandbox)
    again = ProcessExecutor(str(sandbox.spool))
    adopted = again.adopt("a1")
    again.close()

    assert adopted is not None
    assert adopted.state() == state


async def test_the_last_output_on_a_full_disk_is_kept_with_a_line_for_what_was_dropped(
    disk: SmallDisk | FaultyDisk, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    noise = f"yes 0123456 | head -c {MUCH_BYTES}"
    handle = executor.start(
        sandbox.shell("a1", f"echo first; echo > {ready}; read line < {gate}; {noise}; echo last; echo oops >&2")
    )
    ready.read_line()
    until(lambda: read_tail(str(sandbox.spool / "a1"), "stdout", 100) == b"first\n")

    disk.fill(sandbox)
    gate.write_line()
    state = await ended(executor, handle)

    output = read_all(handle)
    head, _, rest = output.partition(b"\n[paceline: ")
    dropped, _, tail = rest.partition(b" bytes of output were dropped here]\n")
    assert state.phase == "ended"
    assert state.message.startswith(f"stdout: {disk.reason}")
    assert head.startswith(b"first\n")
    assert tail.endswith(b"0123456\nlast\n")
    assert len(tail) == KEPT_BYTES
    assert len(head) + int(dropped) + len(tail) == MUCH_BYTES + len("first\nlast\n")
    assert read_all(handle, "stderr") == b"oops\n"
    assert read_tail(str(sandbox.spool / "a1"), "stdout", 5) == b"last\n"


async def test_output_is_recorded_again_once_there_is_room(
    disk: SmallDisk | FaultyDisk, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    noise = f"yes 0123456 | head -c {MUCH_BYTES}"
    script = f"echo > {ready}; read line < {gate}; {noise}; echo > {ready}; read line < {gate}; echo last"
    handle = executor.start(sandbox.shell("a1", script))
    ready.read_line()
    disk.fill(sandbox)
    gate.write_line()
    ready.read_line()

    disk.free(sandbox)
    gate.write_line()
    await ended(executor, handle)

    output = read_all(handle)
    assert b" bytes of output were dropped here]\n" in output
    assert output.endswith(b"0123456\nlast\n")
    assert (sandbox.spool / "a1" / LOCK).stat().st_size == RECORD_BYTES


def test_nothing_is_started_on_a_full_disk(tmp_path: Path, sandbox: Sandbox) -> None:
    """A session whose end could not be recorded would be paid for twice."""
    with small_disk(tmp_path / "spool", may_mount=True) as disk:
        executor = ProcessExecutor(str(sandbox.spool))
        if isinstance(disk, SmallDisk):
            disk.fill(sandbox)
        else:
            (sandbox.spool / "a1").write_text("in the way")

        with pytest.raises(SpoolError):
            executor.start(sandbox.shell("a1", "touch ran"))
        executor.close()

    assert os.listdir(sandbox.work) == []


@pytest.mark.parametrize("text", [b"", b"{", b'{"phase": "ended", "boot', b"\xff\xfe", b"[]", b'{"phase": "odd"}'])
async def test_a_damaged_final_status_is_read_from_its_copy(
    text: bytes, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    state = await ended(executor, executor.start(sandbox.shell("a1", "exit 3")))
    (sandbox.spool / "a1" / "status.json").write_bytes(text)

    again = ProcessExecutor(str(sandbox.spool))
    adopted = again.adopt("a1")
    again.close()

    assert adopted is not None
    assert adopted.state() == state


async def test_a_long_reason_fits_into_the_copy(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    program = "ö" * 3000
    await ended(executor, executor.start(sandbox.launch("a1", program)))
    (sandbox.spool / "a1" / "status.json").unlink()

    status = read_session_status(str(sandbox.spool / "a1"))

    assert status is not None
    assert status.phase == "not_started"
    assert status.message == f"cannot run '{program}'"[:500]
