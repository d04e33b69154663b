"""One connection to a PostgreSQL server: its address, its time limits, and what a pool in between may do; columns.

No wait for a server is without end. A verb over many units is one statement over arrays. `psycopg` would write an array
item by item as text, which costs the engine more than the server takes for the whole statement. These arrays are packed
in PostgreSQL's binary format. Never here: a transaction, or a verb of the store.
"""

import functools
import re
import select
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, Self

import msgspec
import psycopg
from psycopg import sql
from psycopg.abc import RV, Buffer, DumperKey, PQGen
from psycopg.adapt import AdaptersMap, Dumper, Loader, PyFormat
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format
from psycopg.waiting import Ready, Wait

from paceline.errors import InvalidSettings

_ESCAPE: Final = "\ue000"
"""Stands before a letter for a character that PostgreSQL cannot store, or that means something here."""
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_HEAD: Final = ">iiIii"
"""Of an array: the number of its dimensions, whether it has nulls, the type of its items, their count, and its first
index."""
_TYPES: Final = {str: ("text", ""), int: ("int8", "q"), float: ("float8", "d"), bool: ("bool", "?")}
"""The name in PostgreSQL of each type, and its code for `struct`."""


class Column(msgspec.Struct, frozen=True):
    """The values of a column of texts, whole numbers, numbers or truth values. Any of them may be None."""

    kind: type
    items: Sequence[Any]


def _register_values(adapters: AdaptersMap) -> None:
    adapters.register_dumper(str, _TextDumper)
    adapters.register_loader("text", _TextLoader)
    adapters.register_dumper(Column, _ColumnDumper)


# -- text --------------------------------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    if "\x00" in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, f"{_ESCAPE}e").replace("\x00", f"{_ESCAPE}0")
    return text.encode()


class _TextDumper(Dumper):
    """Text of any Unicode characters. PostgreSQL refuses NUL, so it is stored as two others."""

    oid = psycopg.adapters.types["text"].oid

    def dump(self, obj: str) -> bytes:
        return _encoded(obj)


class _TextLoader(Loader):
    """The text as it was before it was stored."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return text.replace(f"{_ESCAPE}0", "\x00").replace(f"{_ESCAPE}e", _ESCAPE) if _ESCAPE in text else text


# -- arrays ------------------------------------------------------------------------------------------


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def get_key(self, obj: Column, wanted: PyFormat) -> DumperKey:
        return self.cls, obj.kind

    def upgrade(self, obj: Column, wanted: PyFormat) -> Self:
        dumper = type(self)(self.cls)
        dumper.oid = psycopg.adapters.types[_TYPES[obj.kind][0]].array_oid
        return dumper

    def dump(self, obj: Column) -> bytes:
        items, (name, code) = obj.items, _TYPES[obj.kind]
        packed = functools.partial(_packed_numbers, code) if code else _packed_text
        head = struct.pack(_HEAD, 1, None in items, psycopg.adapters.types[name].oid, len(items), 1)
        if items and items.count(items[0]) == len(items):  # as most columns of many outcomes are
            return head + packed(items[:1]) * len(items)
        return head + packed(items)


def _packed_text(items: Sequence[str | None]) -> bytes:
    """Return the items, each after its length."""
    parts: list[bytes] = []
    for text in items:
        if text is None:
            parts.append(_NULL)
        else:
            encoded = _encoded(text)
            parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _packed_numbers(code: str, items: Sequence[Any]) -> bytes:
    """Return the items, each after its length. `code` is that of an item for `struct`."""
    size = struct.calcsize(f">{code}")
    if None in items:
        pack = struct.Struct(f">i{code}").pack
        return b"".join(_NULL if each is None else pack(size, each) for each in items)
    values = chain.from_iterable(zip(repeat(size), items, strict=False))
    return struct.pack(f">{f'i{code}' * len(items)}", *values)


Row = tuple[Any, ...]

CONNECT_SECONDS: Final = 5
"""How long one attempt to connect may take. It runs in a thread, so nobody waits for it."""
ANSWER_SECONDS: Final = 5.0
"""After this without a byte from the server the connection is given up: the server has hung, or the network has.
Keepalives do not find that out where the kernel of the server still answers. The longest statement of a busy engine
takes a tenth of it. The server also ends a transaction in which nothing was sent for so long: a process that is stopped
in the middle of one holds the writer's lock, and a standby must be able to take over within 15 s."""
STATEMENT_SHARE: Final = 0.8
"""The share of it after which the server ends a statement by itself. Its word comes first, and the connection stays."""
SLOW_SECONDS: Final = 300.0
"""The same for a statement that may change every unit of a campaign: a million take about half a minute."""
IMPORT_IDLE_SECONDS: Final = 600.0
"""How long a transaction of an import may send nothing: its units may come from a slow program. It takes the writer's
lock only at its end."""

_LIMITS: Final = """SET lock_timeout = {lock}; SET statement_timeout = {statement};
    SET idle_in_transaction_session_timeout = {idle};
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"""
"""The keepalives are those of the server: without them it keeps the connections of a machine that is gone for hours."""
_SLOW: Final = f"SET LOCAL statement_timeout = {round(SLOW_SECONDS * 1000)}"
_BACKEND: Final = "SELECT pg_backend_pid()"
_INDEX_HINT: Final = re.compile(r" INDEXED BY \w+")
_AS_BLOB: Final = re.compile(r"CAST\(([\w.]+) AS BLOB\)")
_PROBES: Final = 3
"""How often the mode of a pool in between is probed. Once is enough unless another client is served at that moment."""


class Connection(psycopg.Connection[Row]):
    """A connection on which no statement waits forever."""

    answer_seconds: float = SLOW_SECONDS

    @classmethod
    def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, on_failure: Callable[[psycopg.Error], object] | None = None, **options: Any
    ) -> Self:
        """Connect. A failure is also given to `on_failure`: a pool would keep it to itself."""
        try:
            connection = super().connect(conninfo, autocommit=True, **options)
        except psycopg.Error as error:
            if on_failure is not None:
                on_failure(error)
            raise
        _register_values(connection.adapters)
        return connection

    def execute(  # type: ignore[override]
        self, query: str | sql.Composed, params: Sequence[object] | Mapping[str, object] | None = None
    ) -> psycopg.Cursor[Row]:
        """Run a statement, which may be in the dialect of SQLite."""
        return self.cursor().execute(translated(query) if isinstance(query, str) else query, params)

    def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> psycopg.Cursor[Row]:
        """Run a statement for each row, in one trip to the server."""
        cursor = self.cursor()
        cursor.executemany(translated(query), rows)
        return cursor

    def limit_times(self, *, lock_seconds: float, answer_seconds: float) -> None:
        """Set the limits of all transactions, here and in the server."""
        self.answer_seconds = answer_seconds
        self.execute(
            _LIMITS.format(
                lock=round(lock_seconds * 1000),
                statement=round(answer_seconds * STATEMENT_SHARE * 1000),
                idle=round(answer_seconds * 1000),
            )
        )

    def allow_slow_statements(self) -> None:
        """Give the rest of the transaction the time to change every unit of a campaign."""
        if self.answer_seconds < SLOW_SECONDS:
            self.answer_seconds = SLOW_SECONDS
            self.execute(_SLOW)

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for what the statement waits for. `psycopg` itself would wait forever."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        patience = self.answer_seconds
        try:
            wanted = next(gen)
            poll, socket = select.poll(), self.pgconn.socket
            while True:
                poll.register(socket, _EVENTS[wanted])
                found = poll.poll(patience * 1000)
                if not found:
                    self.close()
                    raise psycopg.OperationalError(f"nothing came from the server within {patience:g} s")
                wanted = gen.send(_ready(found[0][1]))
        except StopIteration as end:
            answer: RV = end.value
            return answer
        except KeyboardInterrupt:
            self.close()  # else it would be in the middle of a statement
            raise


_EVENTS: Final = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


def _ready(events: int) -> Ready:
    """Return what the socket is ready for. A broken one is ready to be read: reading it raises the error."""
    if not events & select.POLLOUT:
        return Ready.R
    return Ready.RW if events & ~select.POLLOUT else Ready.W


@functools.lru_cache(maxsize=512)
def translated(statement: str) -> str:
    """Return the statement with what SQLite spells differently. Text needs no cast: any of it can be read."""
    statement = _AS_BLOB.sub(r"\1", _INDEX_HINT.sub("", statement))
    return statement.replace("?", "%s")


# -- the address -------------------------------------------------------------------------------------


def server_place(url: str) -> str:
    """Return the address without its password, for messages."""
    parts = _parts(url)
    hosts = str(parts.get("host") or "localhost").split(",")
    ports = str(parts.get("port") or 5432).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(f"{host or 'localhost'}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{places}/{parts.get('dbname') or parts.get('user') or ''}"


def with_time_limits(url: str) -> str:
    """Return the address with limits for servers that vanish without a word. What the address sets itself wins."""
    limits: dict[str, str | int] = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": "paceline",
    }
    return make_conninfo(url, **{name: value for name, value in limits.items() if name not in _parts(url)})


def _parts(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidSettings(
            f"store.url is not an address of PostgreSQL ({first_line(error)}); "
            "use postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        ) from error


# -- a pool between us and the server ----------------------------------------------------------------


def check_sessions(first: Connection, url: str, place: str) -> None:
    """Raise `InvalidSettings` if a pool in between gives each transaction to another session of the server.

    Such a pool (pgbouncer with `pool_mode = transaction` or `statement`) loses our time limits, prepared statements
    and notifications. It is found by what it does: two connections at once are served by one process of the server.
    """
    served_by = _backend(first)
    if served_by == first.info.backend_pid:
        return  # a pool makes up this number
    with Connection.connect(url) as second:
        try:
            has_sessions = all(_is_kept_apart(first, second, served_by) for _ in range(_PROBES))
        except psycopg.errors.ProtocolViolation:  # in statement mode it refuses transactions
            has_sessions = False
    if not has_sessions:
        raise InvalidSettings(
            f"store.url names a connection pool in transaction mode ({place}), and Paceline needs sessions of its own: "
            "name the server itself, or a pool with pool_mode = session"
        )


def _is_kept_apart(first: Connection, second: Connection, served_by: int) -> bool:
    """Return whether the process that served the first connection serves it still, and nobody else."""
    second.execute("BEGIN")
    other, still = _backend(second), _backend(first)
    second.execute("ROLLBACK")
    return other != served_by == still


def _backend(connection: Connection) -> int:
    row = connection.execute(_BACKEND).fetchone()
    assert row is not None
    return int(row[0])


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
