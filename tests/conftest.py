"""Where the tests keep their files: in memory, where that has room and runs programs. Recorded answers. Random tests.

Every stored transition is synced to the disk, and the tests store many thousands. What is tested of that is what a
killed process leaves behind, which is the same in both places. PYTEST_DEBUG_TEMPROOT names another place.
"""

import gc
import itertools
import os
import random
from collections import defaultdict
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite(  # so that a difference is shown, not only that there is one
    "tests.golden.recording",
    "paceline.testing.store_contract",
    "paceline.testing.store_steps",
)
from tests.golden.recording import Recordings  # noqa: E402
from tests.postgres_server import running_server  # noqa: E402

MEMORY = "/dev/shm"
NEEDED_BYTES = 2 << 30

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")  # a busy machine breaks no promise


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="rewrite the recorded answers instead of failing")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests in each, in random order")
    parser.addoption("--slowest", type=int, metavar="N", help="write the N slowest tests to a file, and name it")
    parser.addoption("--seeds", type=int, default=100_000, help="lives of the simulated world in a soak")
    parser.addoption("--nights", type=int, default=20_000, help="nights of a simulated engine in a soak")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle with the seed, if there is one. Tests of a module stay together: they share its fixtures."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    order = random.Random(seed)
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    groups = list(modules.values())
    order.shuffle(groups)
    for group in groups:
        order.shuffle(group)
    items[:] = [item for group in groups for item in group]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the slowest tests, with their fixtures: one line for each would hide the result."""
    count = config.getoption("--slowest")
    if not count:
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
    file = config.rootpath / ".pytest_cache" / "slowest"
    file.parent.mkdir(exist_ok=True)
    order = sorted(seconds, key=lambda name: -seconds[name])
    slowest = [f"{seconds[name]:6.1f} s  {name}\n" for name in order[:count]]
    file.write_text("".join(slowest))
    terminalreporter.write(f"slowest tests, all {len(slowest)} in {file.relative_to(config.rootpath)}:\n")
    terminalreporter.write("".join(slowest[:5]))


@pytest.fixture
def recordings(request: pytest.FixtureRequest) -> Recordings:
    """The recorded answers beside the test: the folder `recorded` next to its module."""
    return Recordings(request.path.parent / "recorded", rewrite=request.config.getoption("--record"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the collected tests and all modules out of garbage collections, which took up to a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_frozen_garbage() -> Iterator[None]:
    """Let no engine that runs in this process freeze its objects: the garbage of a test would stay for ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        yield


@pytest.fixture(autouse=True)
def usual_garbage_collection() -> Iterator[None]:
    """Undo what an engine that runs in this process sets: the garbage of one test must not end in another."""
    before = gc.get_threshold()
    yield
    if gc.get_threshold() != before:
        gc.set_threshold(*before)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a real PostgreSQL server."""
    given = os.environ.get("PACELINE_TEST_POSTGRES")
    if given:
        yield given
        return
    with running_server() as server:
        yield server.url


def pytest_configure(config: pytest.Config) -> None:
    if _has_room_for_programs(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _has_room_for_programs(folder: str) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= NEEDED_BYTES and not found.f_flag & os.ST_NOEXEC
