"""A link to a server that a test can cut or stall, as networks do.

with LinkProxy(server.socket) as link:
    store = PostgresStore(link.url)
    link.stall()      # what is sent is swallowed; connections stay open
    link.cut()        # all connections end, and new ones are refused
    link.restore()
"""

import contextlib
import selectors
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16
BACKLOG = 128


class LinkProxy:
    """A TCP port on this machine in front of the socket of a server."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port: int = self._listening.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._is_stalled = self._is_cut = self._is_over = False
        self._thread = threading.Thread(target=self._carry, daemon=True)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._wake.send(b"x")
        self._thread.join()
        self.cut()
        for each in (self._listening, self._wake, self._woken):
            each.close()
        self._selector.close()

    def stall(self) -> None:
        """Swallow everything from now on. New connections are accepted, and get no answer."""
        self._is_stalled = True

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._is_cut = True
        with self._lock:
            for each in list(self._peers):
                self._end(each)

    def restore(self) -> None:
        """Carry again what is sent on new connections. Those that were stalled have lost bytes, so they end."""
        self.cut()
        self._is_stalled = self._is_cut = False

    def _carry(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                with self._lock:
                    if source is self._listening:
                        self._accept()
                    elif source in self._peers:
                        self._pass_on(source)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        if self._is_cut:
            client.close()
            return
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._upstream)
        except OSError:
            server.close()
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if data := source.recv(CHUNK_BYTES):
                if not self._is_stalled:
                    self._peers[source].sendall(data)
                return
        self._end(source)

    def _end(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        if other is None:
            return
        del self._peers[other]
        for each in (one, other):
            self._selector.unregister(each)
            each.close()
