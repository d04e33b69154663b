"""What is known of a workspace besides its files: whether it was made whole, and whether it is set up.

The record of a worktree lies in the git folder of its repository, that of a copy beside it. So it outlives the
workspace. It is written before anything is made, and again when all is made. So what a crash left half-made is known.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.workspaces.locks import locked
from paceline.workspaces.places import WorkspacePlace

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class WorkspaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one workspace. `was_lost`: it had been made before, and its folder disappeared."""

    path: str
    branch: str | None = None
    phase: Literal["making", "made"] = "making"
    was_lost: bool = False
    is_set_up: bool = False
    uncommitted: tuple[str, ...] = ()
    """Included files that git does not ignore. They are no part of the unit's work and are never committed."""


class RecordFile:
    """The file with the record of one workspace, and the lock of that workspace."""

    def __init__(self, folder: str, place: WorkspacePlace) -> None:
        digest = hashlib.sha256(os.fsencode(place.path)).hexdigest()[:16]
        self._place = place
        self._file = os.path.join(folder, f"{os.path.basename(place.path)[:100]}-{digest}.json")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock of the workspace. Yield its descriptor, for processes that must hold it too."""
        with locked(f"{self._file}.lock") as fd:
            yield fd

    def read(self) -> WorkspaceRecord | None:
        """Return the record, or None if there is none or it is damaged."""
        try:
            with open(self._file, "rb") as file:
                record = msgspec.json.decode(file.read(), type=WorkspaceRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        except OSError as error:
            raise WorkspaceError(f"cannot read {self._file}: {error.strerror}") from error
        return record if record.path == self._place.path else None

    def write(self, record: WorkspaceRecord) -> None:
        """Replace the record. A crash leaves the old one or the new one, whole."""
        temporary = f"{self._file}.new"
        try:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(msgspec.json.encode(record))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._file)
        except OSError as error:
            raise folder_error(self._file, error) from error

    def delete(self) -> None:
        """Delete the record and its lock. Only the holder of the lock may do this."""
        for file in (self._file, f"{self._file}.new", f"{self._file}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)


def folder_error(path: str, error: OSError) -> WorkspaceError | NoRoomForSession:
    """Return the error to raise where a file of a workspace cannot be written."""
    if error.errno in _NO_ROOM:
        return NoRoomForSession(f"no workspace can be made now: {error.strerror} ({path}); free some disk space")
    return WorkspaceError(f"cannot write {error.filename or path}: {error.strerror}")
