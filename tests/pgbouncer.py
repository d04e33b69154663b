"""A real pgbouncer in front of a server of the tests, where it is installed (Debian: `apt install pgbouncer`)."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.postgres_server import SERVER_USER, PostgresServer

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
PATIENCE_SECONDS = 60.0

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


@contextlib.contextmanager
def running_pgbouncer(server: PostgresServer, mode: str) -> Iterator[str]:
    """Run it in front of the server while the block runs, and give its address."""
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = server.folder / f"pgbouncer-{port}.ini"
    settings.write_text(
        f"[databases]\npostgres = host={server.folder} dbname=postgres user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = 8\n"
    )
    settings.chmod(0o644)
    user = pwd.getpwnam(SERVER_USER) if os.geteuid() == 0 else None  # it refuses to run as root
    process = subprocess.Popen(
        [PROGRAM, "-q", str(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
    )
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        _wait_for(url)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if time.monotonic() > give_up_at:
                raise
        else:
            return
