"""Sessions in a terminal: a size, a screen, typed input, and the same endings as any other session."""

from collections.abc import Iterator

import msgspec
import pytest
from tests.executors.conftest import Sandbox, ended, read_all, until

from paceline.detect import StreamReader
from paceline.executors.process import LAST_SCREEN, ProcessExecutor, ProcessHandle


@pytest.fixture
def terminals(sandbox: Sandbox) -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(str(sandbox.spool))
    yield executor
    for handle in list(executor._handles.values()):
        executor.kill(handle)
    executor.close()


def start(terminals: ProcessExecutor, sandbox: Sandbox, script: str, **more: float) -> ProcessHandle:
    return terminals.start(msgspec.structs.replace(sandbox.shell("t1", script, **more), terminal=True))


def shows(handle: ProcessHandle, text: str) -> bool:
    return text in "\n".join(handle.screen())


async def test_the_agent_has_a_terminal_with_a_size(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = start(terminals, sandbox, "test -t 0 && test -t 1 && test -t 2 && stty size < /dev/tty")

    state = await ended(terminals, handle)

    assert state.exit_code == 0
    assert handle.screen()[0] == "50 200"
    assert handle.channels == ("screen",)


async def test_the_last_screen_is_kept_as_text(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = start(terminals, sandbox, r"printf 'gone\033[2J\033[H\033[31mrote Zeile\033[0m\r\n\033[5;3Hhere'")

    await ended(terminals, handle)

    assert (sandbox.spool / "t1" / LAST_SCREEN).read_text() == "rote Zeile\n\n\n\n  here\n"
    assert b"\x1b[31m" in read_all(handle, "screen")


async def test_an_engine_that_did_not_start_it_sees_its_screen(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    go = sandbox.fifo("go")
    first = start(terminals, sandbox, f"echo one; read line < {go}; echo two")
    until(lambda: shows(first, "one"))

    other = ProcessExecutor(str(sandbox.spool))
    second = other.adopt("t1")
    assert second is not None
    assert shows(second, "one")
    go.write_line()
    state = await ended(other, second)

    assert state.exit_code == 0
    assert shows(second, "two")
    other.close()


async def test_input_is_typed_at_the_start(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    launch = sandbox.launch("t1", "sh", "-c", "read a; read b; echo [$a:$b]", stdin=b"one\rtwo\r")
    handle = terminals.start(msgspec.structs.replace(launch, terminal=True))

    assert (await ended(terminals, handle)).exit_code == 0
    assert shows(handle, "[one:two]")


async def test_much_input_is_typed_as_the_agent_reads_it(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    launch = sandbox.launch(
        "t1", "sh", "-c", "while read line; do case $line in 499*) echo last $line; exit; esac; done"
    )
    lines = b"".join(b"%d %s\r" % (number, b"x" * 90) for number in range(500))
    handle = terminals.start(msgspec.structs.replace(launch, stdin=lines, terminal=True))

    assert (await ended(terminals, handle)).exit_code == 0
    assert shows(handle, "last 499 xxx")


async def test_an_agent_that_closes_its_terminal_before_it_ends_is_not_hung_up(
    terminals: ProcessExecutor, sandbox: Sandbox
) -> None:
    handle = start(terminals, sandbox, "echo done; exec <&- >&- 2>&-; sleep 0.3; exit 0")

    assert (await ended(terminals, handle)).exit_code == 0
    assert shows(handle, "done")


async def test_a_stop_ends_it_and_keeps_the_screen(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    handle = start(terminals, sandbox, "trap '' HUP TERM; echo waiting; while :; do sleep 1000; done")
    until(lambda: shows(handle, "waiting"))

    terminals.stop(handle, grace=0.2)
    state = await ended(terminals, handle)

    assert (state.cause, state.signal) == ("stopped", 9)
    assert (sandbox.spool / "t1" / LAST_SCREEN).read_text() == "waiting\n"


async def test_what_stands_on_the_screen_is_read_as_signals(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    words = "Claude usage limit reached. Your limit will reset at 3pm (UTC)."
    handle = start(terminals, sandbox, f'echo "{words}"; exit 1')
    state = await ended(terminals, handle)

    reader = StreamReader("claude-code")
    signals = reader.feed(read_all(handle, "screen"), channel="screen", seen_at=1_767_225_600.0)
    signals += reader.close(exit_code=state.shell_code, seen_at=1_767_225_600.0)

    assert [type(signal).__name__ for signal in signals] == ["QuotaClosed"]


async def test_a_missing_program_was_never_started(terminals: ProcessExecutor, sandbox: Sandbox) -> None:
    launch = msgspec.structs.replace(sandbox.launch("t1", "no-such-agent"), terminal=True)
    state = await ended(terminals, terminals.start(launch))

    assert state.phase == "not_started"
    assert "cannot run 'no-such-agent'" in state.message


async def test_the_same_executor_runs_what_needs_no_terminal_without_one(
    terminals: ProcessExecutor, sandbox: Sandbox
) -> None:
    handle = terminals.start(sandbox.shell("plain", "test -t 1 && echo terminal || echo pipe"))
    await terminals.wait_ended(10.0)

    assert handle.channels == ("stdout", "stderr")
    assert (handle.read_new("stdout"), handle.state().exit_code) == (b"pipe\n", 0)
