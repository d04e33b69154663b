"""Folders that only their owner can enter: the home and the spool. They hold prompts, output and control files.

Whoever can write there can end processes of the owner and overwrite files. So an existing folder is made private too,
and a folder of somebody else, or a symbolic link in its place, is refused.
"""

import os
import pwd
import stat

from paceline.errors import SpoolError

PRIVATE_MODE = 0o700
_OTHERS = 0o077


def make_private(folder: str) -> None:
    """Create the folder, or make the existing one private. Raise `SpoolError` if it is not ours."""
    try:
        os.makedirs(folder, mode=PRIVATE_MODE, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(folder):
            raise SpoolError(
                f"{folder} is a symbolic link to {os.path.realpath(folder)}; set PACELINE_HOME to a folder itself"
            ) from error
        raise SpoolError(
            f"cannot create the folder {folder}: {error.strerror}; set PACELINE_HOME to a folder of yours"
        ) from error
    try:
        _check_owner(folder, os.fstat(fd).st_uid)
        if stat.S_IMODE(os.fstat(fd).st_mode) & _OTHERS:
            os.fchmod(fd, PRIVATE_MODE)
    finally:
        os.close(fd)


def is_open_to_others(folder: str) -> bool:
    """Return whether other users can enter an existing folder."""
    try:
        return bool(stat.S_IMODE(os.lstat(folder).st_mode) & _OTHERS)
    except OSError:
        return False


def can_be_used(folder: str) -> bool:
    """Return whether a folder of ours is there, or none at all. False for one of another user."""
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def is_own_folder(path: str) -> bool:
    """Return whether the path is a folder of ours, and no link to one."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _check_owner(folder: str, owner: int) -> None:
    if owner != os.geteuid():
        raise SpoolError(
            f"{folder} belongs to {_user_name(owner)}, not to you ({_user_name(os.geteuid())});"
            " set PACELINE_HOME to a folder of yours, or run as its owner"
        )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
