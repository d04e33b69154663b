"""One sub-agent through the gateway of OpenClaw, over its double and, on `make test-openclaw`, over the real one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.agents.agent_cli import IS_OPENCLAW_INSTALLED
from tests.executors.conftest import until
from tests.fake_openclaw import FakeOpenClaw
from tests.openclaw_gateway import RealOpenClaw, children_of

from paceline.core.signals import AuthFailed, PlatformLimit, Signal, Unreachable
from paceline.detect import StreamReader
from paceline.executors import openclaw_child

PROGRAM = [sys.executable, "-I", "-S", "-X", "utf8", openclaw_child.__file__]
SECONDS = 240.0
"""Far more than a child needs; the real gateway is slow where much else runs."""
REAL = pytest.param(
    "real",
    marks=[
        pytest.mark.openclaw,
        pytest.mark.skipif(not IS_OPENCLAW_INSTALLED, reason="OpenClaw is not installed: make openclaw"),
    ],
)
Claw = FakeOpenClaw | RealOpenClaw


class Ended(msgspec.Struct, frozen=True):
    """What Paceline reads in the output of an ended program."""

    outcome: str | None
    exit_code: int
    signals: list[Signal]
    text: str
    stderr: str


class Running:
    """A program that runs one child."""

    def __init__(self, process: "subprocess.Popen[bytes]", task: str) -> None:
        self.process = process
        assert process.stdin is not None
        process.stdin.write(task.encode())
        process.stdin.close()
        process.stdin = None

    def stop(self, number: int) -> None:
        self.process.send_signal(number)

    def await_note(self, text: str) -> None:
        """Wait until the program has printed a note with these words."""
        assert self.process.stderr is not None
        while text not in (line := self.process.stderr.readline().decode()):
            assert line, f"it ended without the note {text!r}"

    def end(self) -> Ended:
        out, err = self.process.communicate(timeout=SECONDS)
        code = self.process.returncode
        reader = StreamReader("openclaw", tz="UTC")
        signals: list[Signal] = []
        channels: tuple[tuple[Literal["stdout", "stderr"], bytes], ...] = (("stderr", err), ("stdout", out))
        for channel, output in channels:
            signals += reader.feed(output, channel=channel, seen_at=1.0)
        signals += reader.close(exit_code=code, seen_at=1.0)
        text = reader.failure_text or reader.answer or ""
        return Ended(reader.outcome, code, signals, text, err.decode())


class Bench:
    """Starts programs for the children of one parent session of a gateway."""

    def __init__(self, claw: Claw, folder: Path, parent: str) -> None:
        self.claw = claw
        self.parent = parent
        self._folder = folder
        self._running: list[Running] = []

    def start(self, unit: str, *arguments: str, attempt: str = "1", task: str = "say hi", token: str = "") -> Running:
        environ = {
            "OPENCLAW_GATEWAY_URL": self.claw.url,
            "OPENCLAW_GATEWAY_TOKEN": token or self.claw.token,
            "OPENCLAW_GATEWAY_PARENT": self.parent,
            "PACELINE_UNIT": f"docs/{unit}",
            "PACELINE_ATTEMPT": f"{unit}-{attempt}",
        }
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=self._folder, env=environ, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._running.append(Running(started, task))
        return self._running[-1]

    def start_slow(self, *units: str) -> list[Running]:
        """Start children that work until they are stopped, and wait until the gateway has them."""
        started = []
        for unit in units:
            started.append(self.start(unit, "--model", "slow/m1"))
            self.await_child(self.label(unit))
        return started

    def label(self, unit: str, attempt: str = "1") -> str:
        return f"paceline docs/{unit} {unit}-{attempt}"

    def children(self) -> dict[str, str]:
        """Return the status of each child by its label. Two with one label would be one too many."""
        found = children_of(self.claw.url, self.parent)
        assert len({label for label, _ in found}) == len(found)
        return dict(found)

    def await_child(self, label: str, *statuses: str) -> None:
        """Wait until there is such a child, in one of the statuses if some are named."""
        until(lambda: label in (found := self.children()) and (not statuses or found[label] in statuses), SECONDS)

    def close(self) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
            running.process.communicate()


@pytest.fixture(scope="module")
def real_claw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOpenClaw]:
    with RealOpenClaw(tmp_path_factory.mktemp("openclaw")) as claw:
        yield claw


@pytest.fixture(params=["double", REAL])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A gateway with a cap of three children for each parent, and a parent of its own for each test."""
    name = request.node.originalname
    if request.param == "real":
        made = Bench(request.getfixturevalue("real_claw"), tmp_path, f"agent:main:{name[:60]}")
        yield made
        made.close()
        return
    with FakeOpenClaw(max_children=3, ghost_seconds=1.0) as claw:
        made = Bench(claw, tmp_path, f"agent:main:{name[:60]}")
        yield made
        made.close()


# -- over both ---------------------------------------------------------------------------------------------------


def test_a_child_answers_with_its_words_and_tokens(bench: Bench) -> None:
    ended = bench.start("a").end()

    assert (ended.outcome, ended.exit_code, ended.signals) == ("success", 0, [])
    assert ended.text.startswith("Answer")
    assert bench.children() == {bench.label("a"): "completed"}


def test_a_child_above_the_cap_is_refused_with_the_numbers_and_none_is_left(bench: Bench) -> None:
    bench.start_slow("a", "b", "c")

    ended = bench.start("d", "--model", "slow/m1").end()

    assert (ended.outcome, ended.exit_code) == ("rate_limit", 1)
    [limit] = ended.signals
    assert isinstance(limit, PlatformLimit)
    assert (limit.in_use, limit.limit, limit.reach) == (3, 3, "account")
    assert bench.children() == {bench.label(unit): "running" for unit in "abc"}


def test_a_stopped_program_cancels_its_child(bench: Bench) -> None:
    [running] = bench.start_slow("a")

    running.stop(signal.SIGTERM)

    assert (running.end().exit_code, running.end().outcome) == (143, "interrupted")
    bench.await_child(bench.label("a"), "cancelled")


def test_the_next_attempt_finds_the_child_of_a_program_that_was_killed(bench: Bench) -> None:
    [killed] = bench.start_slow("a")
    killed.stop(signal.SIGKILL)
    killed.end()

    following = bench.start("a", "--model", "slow/m1", attempt="2")
    following.await_note("found the child 'paceline docs/a a-1': running")
    other = bench.start("a", "--model", "slow/m1", attempt="3", task="something else")
    bench.await_child(bench.label("a", "3"))

    assert bench.children() == {bench.label("a"): "running", bench.label("a", "3"): "running"}
    following.stop(signal.SIGTERM)
    other.stop(signal.SIGTERM)
    bench.await_child(bench.label("a"), "cancelled")


def test_a_child_that_its_provider_refuses_is_rate_limited(bench: Bench) -> None:
    ended = bench.start("a", "--model", "limited/m1").end()

    assert (ended.outcome, ended.exit_code) == ("rate_limit", 1)
    assert "API rate limit reached" in ended.text


def test_a_wrong_token_stops_the_account(bench: Bench) -> None:
    ended = bench.start("a", token="wrong").end()

    [stop] = ended.signals
    assert isinstance(stop, AuthFailed)
    fix = f"the OpenClaw gateway at {bench.claw.url} refused the token (Unauthorized): set OPENCLAW_GATEWAY_TOKEN"
    assert (ended.outcome, stop.detail) == ("auth", fix)


def test_a_child_that_died_with_the_gateway_was_interrupted_and_teaches_no_limit(bench: Bench) -> None:
    running = bench.start_slow("a", "b", "c")
    bench.claw.kill()
    bench.claw.start()

    late = bench.start("d").end()

    assert (late.outcome, late.signals) == ("success", []), late.stderr
    ended = [each.end() for each in running]
    # Where the real one needs longer to start than a program waits, nobody answered. Neither charges an attempt.
    uncharged = {"interrupted"} if isinstance(bench.claw, FakeOpenClaw) else {"interrupted", "unreachable"}
    assert {each.outcome for each in ended} <= uncharged, ended
    assert bench.children()[bench.label("a")] == "failed"


# -- over the double -----------------------------------------------------------------------------------------------


@pytest.fixture
def double(tmp_path: Path) -> Iterator[Bench]:
    with FakeOpenClaw(max_children=3, max_concurrent=1) as claw:
        made = Bench(claw, tmp_path, "agent:main:paceline")
        yield made
        made.close()


def claw_of(bench: Bench) -> FakeOpenClaw:
    assert isinstance(bench.claw, FakeOpenClaw)
    return bench.claw


def test_a_lost_answer_doubles_no_child(double: Bench) -> None:
    claw_of(double).lost_answers = 2

    ended = double.start("a").end()

    assert (ended.outcome, claw_of(double).spawns) == ("success", 1)


def test_a_gateway_that_is_down_is_unreachable(double: Bench) -> None:
    claw_of(double).stop()

    ended = double.start("a").end()

    assert (ended.outcome, [type(each) for each in ended.signals]) == ("unreachable", [Unreachable])
    assert ended.text == f"cannot connect to the OpenClaw gateway at {double.claw.url}: connection refused"


def test_an_outage_while_a_child_works_changes_nothing(double: Bench) -> None:
    [running] = double.start_slow("a")
    claw_of(double).stop()
    claw_of(double).start()

    claw_of(double).finish("docs/a", "done at last")

    ended = running.end()
    assert (ended.outcome, ended.text, claw_of(double).spawns) == ("success", "done at last", 1)


def test_an_accepted_child_waits_in_the_lane(double: Bench) -> None:
    [first] = double.start_slow("a")
    second = double.start("b")
    claw_of(double).wait_for(2)

    claw_of(double).finish("docs/a")

    assert (first.end().outcome, second.end().outcome) == ("success", "success")


def test_a_gateway_that_does_not_offer_spawning_names_the_setting(tmp_path: Path) -> None:
    with FakeOpenClaw(allowed=()) as claw:
        ended = Bench(claw, tmp_path, "agent:main:paceline").start("a").end()

    [stop] = ended.signals
    assert isinstance(stop, AuthFailed)
    assert stop.detail == (
        "the OpenClaw gateway does not offer sessions_spawn (Tool not available: sessions_spawn):"
        ' add "sessions_spawn" to gateway.tools.allow in its openclaw.json'
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--resume", "x"],
            "sub-agents of OpenClaw have no option '--resume'; there are --model, --thinking, --agent-id",
        ),
        (["--run-timeout", "soon"], "--run-timeout needs whole seconds, not 'soon'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_spawned(
    double: Bench, arguments: list[str], complaint: str
) -> None:
    ended = double.start("a", *arguments).end()

    assert ended.outcome == "failed"
    assert ended.text.startswith(complaint)
    assert claw_of(double).spawns == 0
