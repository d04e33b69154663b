"""A real server that keeps what it promised: `fsync` and `synchronous_commit` on. Each contender gets a database."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.postgres_server import SERVER_USER, PostgresServer

GIVEN = "PACELINE_BENCH_POSTGRES"


@contextlib.contextmanager
def durable_server(place: str | None) -> Iterator[str]:
    """Give the address of a server with its data below `place`, or of the one in `PACELINE_BENCH_POSTGRES`."""
    if GIVEN in os.environ:
        yield os.environ[GIVEN]
        return
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=place))
    if os.geteuid() == 0:
        shutil.chown(folder, SERVER_USER)
    server = PostgresServer(folder)
    with open(server.data / "postgresql.conf", "a", encoding="utf-8") as settings:
        settings.write("fsync = on\nsynchronous_commit = on\n")  # the last line of a setting counts
    server.start()
    try:
        yield server.url
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop("immediate")
        shutil.rmtree(folder)


@contextlib.contextmanager
def new_database(url: str) -> Iterator[str]:
    """Give the address of an empty database, which is dropped afterwards."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    run(url, f"CREATE DATABASE {name}")
    try:
        yield make_conninfo(url, dbname=name)
    finally:
        run(url, f"DROP DATABASE {name} WITH (FORCE)")


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement outside of a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def as_address(conninfo: str) -> str:
    """Return the same as an address, which settings accept."""
    parts = conninfo_to_dict(conninfo)
    options = {name: str(value) for name, value in parts.items() if name not in ("dbname", "password")}
    return f"postgresql:///{parts['dbname']}?{urllib.parse.urlencode(options)}"
