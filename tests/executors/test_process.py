"""One session at a time: what is recorded, how it is ended, and what is said when it cannot be started."""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.executors.conftest import DEADLINE_SECONDS, Sandbox, ended, is_gone, read_all, until

from paceline.errors import AttemptInUse, InvalidInput, NoRoomForSession, SpoolError
from paceline.executors.interface import Executor
from paceline.executors.process import ProcessExecutor, ProcessHandle
from paceline.executors.spool_writer import LAST_SEGMENTS, SEGMENT_BYTES


def test_it_is_an_executor(tmp_path: Path) -> None:
    executor: Executor = ProcessExecutor(str(tmp_path))

    executor.close()


async def test_output_exit_code_and_usage_are_recorded(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    before = time.time()
    handle = executor.start(sandbox.shell("a1", "echo out; echo err >&2; exit 3"))

    state = await ended(executor, handle)

    assert (state.phase, state.exit_code, state.signal, state.cause) == ("ended", 3, None, "exit")
    assert (read_all(handle), read_all(handle, "stderr")) == (b"out\n", b"err\n")
    assert state.started_at is not None
    assert state.ended_at is not None
    assert before - 1 <= state.started_at <= state.ended_at <= time.time() + 1
    assert state.max_rss_bytes is not None
    assert state.max_rss_bytes > 1 << 20
    assert state.cpu_seconds is not None
    assert 0 <= state.cpu_seconds < 5


async def test_an_ended_session_is_reported_once_while_another_process_has_a_copy_of_its_file(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    handle = executor.start(sandbox.shell("a1", "exit 3"))
    assert isinstance(handle, ProcessHandle)
    assert handle.pidfd is not None
    copy = os.dup(handle.pidfd)  # what a process has between its fork and its exec
    try:
        await ended(executor, handle)
        assert executor.take_ended() == []
    finally:
        os.close(copy)


async def test_a_wait_that_is_cancelled_ends_quietly_after_the_executor_was_closed(tmp_path: Path) -> None:
    executor = ProcessExecutor(str(tmp_path / "spool"))
    waiting = asyncio.ensure_future(executor.wait_ended(60.0))
    await asyncio.sleep(0)
    executor.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_output_can_be_read_while_it_grows(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"echo one; read line < {gate}; echo two"))

    until(lambda: (sandbox.spool / "a1" / "stdout").exists() and handle.read_new("stdout") == b"one\n")
    assert handle.read_new("stdout") == b""
    assert handle.state().phase == "running"
    gate.write_line()
    await ended(executor, handle)

    assert handle.read_new("stdout") == b"two\n"


async def test_input_of_a_megabyte_and_any_character_arrives_whole(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    prompt = ("ünïcödé 🛰 \n" * 60_000).encode()
    assert len(prompt) > 1 << 20
    handle = executor.start(sandbox.launch("a1", "cat", stdin=prompt))

    await ended(executor, handle)

    assert read_all(handle) == prompt


async def test_arguments_and_environment_arrive_as_they_are(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    argument = "ö → 'quoted' \"twice\" \udcff -- key=value\nline"
    script = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + b'|' + os.environb[b'ODD'])"
    env = {"ODD": "ü\udcfe", "PYTHONHOME": "", "PYTHONPATH": "/nowhere"}
    handle = executor.start(sandbox.launch("a1", "python3", "-X", "utf8", "-c", script, argument, env=env))

    await ended(executor, handle)

    assert read_all(handle) == os.fsencode(argument) + b"|" + os.fsencode("ü\udcfe")


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}])
async def test_the_agent_sees_no_variable_that_was_not_meant_for_it(
    given: dict[str, str], executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    handle = executor.start(sandbox.launch("a1", "env", env={"MARKED": "1", **given}))

    await ended(executor, handle)

    lines = set(read_all(handle).decode().splitlines())
    spool = f"PACELINE_SPOOL={sandbox.spool}/a1"
    assert lines == {f"PATH={os.environ['PATH']}", "MARKED=1", spool, *(f"{k}={v}" for k, v in given.items())}


async def test_the_agent_has_default_signals_and_no_open_files_of_ours(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    """Also where Paceline itself ignores signals, as a background job of a plain shell does with INT and QUIT."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        handle = executor.start(sandbox.shell("a1", "grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    await ended(executor, handle)

    words = read_all(handle).decode().split()
    blocked, ignored = int(words[1], 16), int(words[3], 16) & 0x7FFF_FFFF  # beyond are two of the C library's own
    assert (blocked, ignored) == (0, 0)
    assert words[4:] == ["0", "1", "2", "3"]  # 3 is the folder that `ls` itself reads


async def test_a_signal_is_distinguished_from_an_exit_code(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    state = await ended(executor, executor.start(sandbox.shell("a1", "kill -SEGV $$")))

    assert (state.exit_code, state.signal, state.shell_code) == (None, signal.SIGSEGV, 139)


async def test_bytes_that_are_no_text_are_recorded_as_they_are(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = executor.start(sandbox.shell("a1", r"printf '\377\376\000\200abc'"))

    await ended(executor, handle)

    assert read_all(handle) == b"\xff\xfe\x00\x80abc"


async def test_an_agent_that_closes_its_output_early_goes_on(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    handle = executor.start(sandbox.shell("a1", f"echo last; exec >&- 2>&-; read line < {gate}; exit 4"))

    gate.write_line()
    state = await ended(executor, handle)

    assert state.exit_code == 4
    assert read_all(handle) == b"last\n"


async def test_a_hundred_megabytes_are_bounded_with_a_line_in_place_of_what_was_dropped(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    count = 100 << 20
    handle = executor.start(sandbox.shell("a1", f"echo first; yes 0123456 | head -c {count}; echo last"))

    await ended(executor, handle)

    on_disk = sum(path.stat().st_size for path in (sandbox.spool / "a1").glob("stdout*"))
    output = read_all(handle)
    head, _, rest = output.partition(b"\n[paceline: ")
    dropped, _, tail = rest.partition(b" bytes of output were dropped here]\n")
    assert on_disk <= (LAST_SEGMENTS + 1) * SEGMENT_BYTES
    assert head.startswith(b"first\n0123456\n")
    assert tail.endswith(b"0123456\nlast\n")
    assert len(head) + int(dropped) + len(tail) == count + len("first\nlast\n")


async def test_a_reader_that_keeps_up_loses_nothing(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    script = f"for part in 1 2 3 4; do head -c {10 << 20} /dev/zero; read line < {gate}; done"
    handle = executor.start(sandbox.shell("a1", script))
    received = bytearray()

    def has_received(count: int) -> bool:
        received.extend(read_all(handle))
        return len(received) >= count

    for part in range(1, 5):
        until(partial(has_received, part * (10 << 20)))
        gate.write_line()
    await ended(executor, handle)
    received.extend(read_all(handle))

    assert received == bytes(40 << 20)


# --- what cannot be started ----------------------------------------------------------------------------------


async def test_a_missing_program_was_never_started(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    state = await ended(executor, executor.start(sandbox.launch("a1", "no-such-agent", "-p", "hi")))

    assert state.phase == "not_started"
    assert state.message == "cannot run 'no-such-agent': No such file or directory (is it installed, and on PATH?)"
    assert (state.pid, state.exit_code) == (None, None)


async def test_a_program_that_may_not_be_run_was_never_started(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    (sandbox.work / "agent").write_text("not a program")

    state = await ended(executor, executor.start(sandbox.launch("a1", "./agent")))

    assert (state.phase, state.message) == ("not_started", "cannot run './agent': Permission denied")


@pytest.mark.parametrize(("cwd", "why"), [("missing", "No such file or directory"), ("file", "Not a directory")])
async def test_a_folder_that_cannot_be_worked_in(
    cwd: str, why: str, executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    (sandbox.work / "file").write_text("")
    launch = msgspec.structs.replace(sandbox.launch("a1", "true"), cwd=str(sandbox.work / cwd))

    state = await ended(executor, executor.start(launch))

    assert state.phase == "not_started"
    assert state.message == f"cannot work in '{sandbox.work / cwd}': {why}"


async def test_an_agent_that_fails_like_a_missing_program_did_run(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    state = await ended(executor, executor.start(sandbox.shell("a1", "exit 127")))

    assert (state.phase, state.exit_code) == ("ended", 127)


async def test_a_command_line_that_is_too_long_was_never_started(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = executor.start(sandbox.launch("a1", "echo", "x" * 1_000_000))

    assert handle.state().phase == "not_started"
    assert "pass long input on stdin" in handle.state().message
    assert executor.take_ended() == [handle]


@pytest.mark.parametrize("argv", [(), ("",), ("echo", "a\0b")])
def test_a_command_that_is_none_is_refused(argv: tuple[str, ...], executor: ProcessExecutor, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidInput):
        executor.start(sandbox.launch("a1", *argv))
    assert executor.adopt("a1") is None


@pytest.mark.parametrize("name", ["", "..", ".settled", "a/b", "a\0", "x" * 300, "ä"])
def test_a_name_that_is_no_folder_is_refused(name: str, executor: ProcessExecutor, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidInput):
        executor.start(sandbox.launch(name, "true"))


def test_a_spool_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SpoolError, match="cannot create the folder"):
        ProcessExecutor(str(tmp_path / "file" / "spool"))


async def test_an_attempt_is_started_once(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    gate = sandbox.fifo("gate")
    launch = sandbox.shell("a1", f"echo ran >> runs; read line < {gate}")
    handle = executor.start(launch)

    with pytest.raises(AttemptInUse, match="a1 is running"):
        executor.start(launch)
    gate.write_line()
    await ended(executor, handle)
    with pytest.raises(AttemptInUse, match="a1 has been started before"):
        executor.start(launch)
    executor.archive(handle)
    with pytest.raises(AttemptInUse):
        executor.start(launch)

    assert (sandbox.work / "runs").read_text() == "ran\n"


# --- how it is ended -----------------------------------------------------------------------------------------


async def test_stop_is_term_to_the_whole_group(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    ready = sandbox.fifo("ready")
    script = f"trap 'echo caught; exit 9' TERM; sleep 1000 & echo $! > {ready}; wait"
    handle = executor.start(sandbox.shell("a1", script))
    child = int(ready.read_line())

    executor.stop(handle, grace=10)
    state = await ended(executor, handle)

    assert (state.cause, state.exit_code) == ("stopped", 9)
    assert read_all(handle) == b"caught\n"
    assert is_gone(child)


async def test_an_agent_that_ignores_term_is_killed_after_the_grace(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", f"trap '' TERM; echo > {ready}; while true; do sleep 1000; done"))
    ready.read_line()

    executor.stop(handle, grace=0.3)
    state = await ended(executor, handle)

    assert (state.cause, state.signal) == ("stopped", signal.SIGKILL)


async def test_a_second_stop_may_shorten_the_grace(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", f"trap '' TERM; echo > {ready}; while true; do sleep 1000; done"))
    ready.read_line()

    executor.stop(handle, grace=600)
    executor.stop(handle, grace=0)

    assert (await ended(executor, handle)).signal == signal.SIGKILL


async def test_a_stop_at_once_after_the_start_is_obeyed(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """The signal comes while the supervisor's Python is still starting."""
    for number in range(5):
        handle = executor.start(sandbox.launch(f"a{number}", "sleep", "1000"))
        executor.stop(handle, grace=5)

        state = await ended(executor, handle)

        assert state.phase == "not_started" or state.cause == "stopped"


async def test_a_term_that_nobody_asked_for_is_not_taken_for_a_stop(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", f"echo $PPID > {ready}; sleep 1000"))

    os.kill(int(ready.read_line()), signal.SIGTERM)

    assert (await ended(executor, handle)).cause == "terminated"


async def test_a_time_out_ends_it(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = executor.start(sandbox.shell("a1", "sleep 1000", timeout=0.3))

    state = await ended(executor, handle)

    assert (state.cause, state.signal) == ("timed_out", signal.SIGTERM)


@pytest.mark.parametrize(
    "limit", [{"timeout": 30 * 86400.0}, {"stall": 365 * 86400.0}, {"timeout": 1e15, "stall": 1e15}]
)
async def test_a_limit_of_years_is_a_limit_like_any_other(
    limit: dict[str, float], executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    """The kernel counts the milliseconds of a wait in 32 bits."""
    state = await ended(executor, executor.start(sandbox.shell("a1", "exit 3", **limit)))

    assert (state.phase, state.exit_code) == ("ended", 3)


async def test_an_agent_that_prints_nothing_and_does_nothing_has_stalled(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    state = await ended(executor, executor.start(sandbox.shell("a1", "echo begun; sleep 1000", stall=0.4)))

    assert state.cause == "stalled"


async def test_an_agent_that_works_in_silence_has_not_stalled(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    """A grandchild in a session of its own does the work."""
    script = "setsid sh -c 'while true; do :; done' & wait"
    state = await ended(executor, executor.start(sandbox.shell("a1", script, stall=1, timeout=2.5, grace=0.1)))

    assert state.cause == "timed_out"


async def test_an_agent_that_prints_now_and_then_has_not_stalled(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo; sleep 0.3; done"
    state = await ended(executor, executor.start(sandbox.shell("a1", script, stall=2)))

    assert (state.cause, state.exit_code) == ("exit", 0)


async def test_daemons_die_with_their_agent(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    daemon = f"trap '' TERM; sleep 1000 & echo \\$! > {ready}; wait"
    handle = executor.start(sandbox.shell("a1", f'setsid sh -c "{daemon}" & read line < {gate}; exit 5'))
    child_of_daemon = int(ready.read_line())

    gate.write_line()
    state = await ended(executor, handle)

    assert state.exit_code == 5
    assert is_gone(child_of_daemon)


async def test_orphans_that_end_while_the_agent_runs_are_reaped(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    ready, gate = sandbox.fifo("ready"), sandbox.fifo("gate")
    script = f"(setsid true & echo $! > {ready}); read line < {gate}"
    handle = executor.start(sandbox.shell("a1", script))
    orphan = int(ready.read_line())

    until(lambda: not os.path.exists(f"/proc/{orphan}"))
    assert handle.state().phase == "running"
    gate.write_line()

    assert (await ended(executor, handle)).exit_code == 0


# --- what the machine has no room for ------------------------------------------------------------------------


async def test_a_spool_that_was_deleted_is_created_again_and_the_loss_names_the_cause(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    ready = sandbox.fifo("ready")
    handle = executor.start(sandbox.shell("a1", f"echo > {ready}; sleep 1000"))
    ready.read_line()
    until(lambda: handle.state().pid is not None)

    shutil.rmtree(sandbox.spool)
    state = await ended(executor, executor.start(sandbox.shell("a2", "exit 3")))
    executor.kill(handle)

    assert state.exit_code == 3
    assert (handle.state().phase, handle.state().message) == (
        "lost",
        f"its folder was deleted from the spool while it ran ({sandbox.spool}/a1)",
    )


def test_too_many_open_files_are_no_fault_of_the_unit(executor: ProcessExecutor, sandbox: Sandbox) -> None:
    with (
        no_file_free(),
        pytest.raises(NoRoomForSession, match=r"too many files are open; raise the limit \(ulimit -n\)"),
    ):
        executor.start(sandbox.shell("a1", "true"))


@contextlib.contextmanager
def no_file_free() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_an_end_that_cannot_be_read_while_too_many_files_are_open_is_read_later(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    handle = executor.start(sandbox.shell("a1", "exit 3"))
    until(lambda: not handle.is_alive())

    with no_file_free():
        meanwhile = (handle.state().phase, executor.take_ended())

    assert meanwhile == ("running", [])
    assert (await ended(executor, handle)).exit_code == 3


async def test_a_session_is_not_lost_while_too_many_files_are_open_to_see_it(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    go = sandbox.fifo("go")
    executor.start(sandbox.shell("a1", f"read line < {go}; exit 3"))
    next_engine = ProcessExecutor(executor.spool.root)

    with no_file_free():
        handle = next_engine.adopt("a1")
        assert handle is not None
        meanwhile = (handle.state().phase, next_engine.take_ended())
    go.write_line()

    assert meanwhile == ("running", [])
    assert (await ended(next_engine, handle)).exit_code == 3
    next_engine.close()


async def test_the_end_of_a_session_that_could_not_be_watched_is_noticed_soon(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    go = sandbox.fifo("go")
    watched = executor.start(sandbox.shell("a1", f"read line < {go}"))
    next_engine = ProcessExecutor(executor.spool.root)
    with no_file_free():
        handle = next_engine.adopt("a1")
        assert handle is not None
        handle.state()
    go.write_line()
    until(lambda: not watched.is_alive())  # too late to watch it

    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await next_engine.wait_ended(10 * DEADLINE_SECONDS) == [handle]
    next_engine.close()


async def test_merged_channels_are_recorded_as_a_terminal_would_show_them(
    executor: ProcessExecutor, sandbox: Sandbox
) -> None:
    launch = sandbox.shell("a1", "echo one; echo two >&2; echo three; echo four >&2; exit 3")
    handle = executor.start(msgspec.structs.replace(launch, merged=True))

    state = await ended(executor, handle)

    assert (state.exit_code, read_all(handle), read_all(handle, "stderr")) == (3, b"one\ntwo\nthree\nfour\n", b"")
