"""Who makes a change: a name that the edges set, and that every stored command carries as `by`.

A command at a terminal and an HTTP request each set it once, before anything else happens, so that no command needs to
pass it on. What an engine does by itself has no author.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar

_requester: ContextVar[str | None] = ContextVar("requester", default=None)
_person: str | None = None
"""Who started this process as a command. A variable of the process, because its threads act for the same person."""


def current_author() -> str | None:
    """Return who makes the change that is being stored: `alice@box1 (cli)`, `alice@box1 (token)` or `... (page)`."""
    return _requester.get() or _person


def signature() -> dict[str, object]:
    """Return the field of an event that says who made the change; nothing for what an engine does by itself."""
    author = current_author()
    return {} if author is None else {"by": author}


@contextlib.contextmanager
def requested_by(author: str) -> Iterator[None]:
    """Name the author of everything that is stored in the block by this task."""
    before = _requester.set(author)
    try:
        yield
    finally:
        _requester.reset(before)


@contextlib.contextmanager
def commanded_by(author: str) -> Iterator[None]:
    """Name the author of everything that this process stores in the block, unless a request names another."""
    global _person
    before, _person = _person, author
    try:
        yield
    finally:
        _person = before


def person() -> str:
    """Return the user of this process and its machine: `alice@box1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no entry in the user database, as in a container
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
