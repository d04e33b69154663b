"""Calls of git that cannot hang, ask, page, sign or run hooks, whatever the user's environment and configuration are.

Here: one process each, with a time-out. Never here: what is done with git.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from paceline.errors import NoRoomForSession, WorkspaceError

GIT_SECONDS: Final = 600.0
"""How long one call may take. A checkout of a very large repository on a slow disk takes minutes, never this long."""
PIECE_BYTES: Final = 1 << 16
_MESSAGE_CHARACTERS: Final = 2000
"""How much of git's error output an error quotes: enough for a list of files, and short enough for a terminal."""
_NO_ROOM: Final = re.compile(
    r"No space left on device|Disk quota exceeded"
    r"|^error: unable to write file [^:\n]*$|unable to write new index file$",
    re.M,
)
"""git names no cause where a write of a file fails. What lies in the folder, such as its permissions, it names."""

_CONFIGURATION: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",  # a daemon per worktree would outlive us
    "core.pager=cat",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",  # it runs in the background and takes locks
    "maintenance.auto=false",
    "submodule.recurse=false",
    "worktree.useRelativePaths=false",  # it marks the repository so that an older git refuses it
    "advice.detachedHead=false",
    "advice.addEmbeddedRepo=false",
    "core.quotePath=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "color.ui=false",
)
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_EDITOR": ":",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}


class GitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one call printed, and its exit code."""

    code: int
    out: bytes
    error: str

    @property
    def line(self) -> str:
        """The output as one line of text."""
        return os.fsdecode(self.out).strip()


class GitCall(msgspec.Struct, frozen=True, kw_only=True):
    """How to call git beyond its arguments."""

    stdin: bytes = b""
    stdin_fd: int | None = None
    """A file that git reads instead, from where it stands."""
    env: Mapping[str, str] = {}
    config: tuple[str, ...] = ()
    accepted: tuple[int, ...] = (0,)
    """Exit codes that are answers, not failures."""
    seconds: float = GIT_SECONDS
    pass_fds: tuple[int, ...] = ()
    """Files that the process keeps open: a lock then lasts as long as git runs, also if we are killed."""


PLAIN: Final = GitCall()


def run_git(folder: str, *arguments: str, call: GitCall = PLAIN) -> GitAnswer:
    """Run git in the folder. Raise `WorkspaceError` with git's own words if it fails or takes too long."""
    with tempfile.TemporaryFile() as error_file, contextlib.ExitStack() as ending:
        process = _start(folder, arguments, call, error_file.fileno())
        ending.callback(_end, process)
        try:
            out, _ = process.communicate(call.stdin, timeout=call.seconds)
        except subprocess.TimeoutExpired as error:
            raise WorkspaceError(
                f"{_shown(arguments)} in {folder} did not end within {call.seconds:g} s; it was stopped"
            ) from error
        answer = GitAnswer(code=process.returncode, out=out, error=_text_of(error_file.fileno()))
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)
    return answer


def stream_git(folder: str, *arguments: str, call: GitCall = PLAIN) -> Iterator[bytes]:
    """Yield the output of git piece by piece. The output of a diff may be larger than the memory.

    The input must fit into a pipe: git has to read all of it before it prints much.
    """
    with tempfile.TemporaryFile() as error_file, contextlib.ExitStack() as ending:
        process = _start(folder, arguments, call, error_file.fileno())
        ending.callback(_end, process)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # git has failed, and says why
            process.stdin.write(call.stdin)
            process.stdin.close()
        timer = threading.Timer(call.seconds, _kill, (process,))
        timer.start()
        ending.callback(timer.cancel)
        while piece := os.read(process.stdout.fileno(), PIECE_BYTES):
            yield piece
        answer = GitAnswer(code=process.wait(), out=b"", error=_text_of(error_file.fileno()))
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)


def _start(folder: str, arguments: Sequence[str], call: GitCall, error_fd: int) -> "subprocess.Popen[bytes]":
    options = [part for setting in (*_CONFIGURATION, *call.config) for part in ("-c", setting)]
    try:
        return subprocess.Popen(
            ["git", *options, *arguments],
            cwd=folder,
            env=_environment(call.env),
            stdin=subprocess.PIPE if call.stdin_fd is None else call.stdin_fd,
            stdout=subprocess.PIPE,
            stderr=error_fd,
            pass_fds=call.pass_fds,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if os.path.isdir(folder):
            raise WorkspaceError("git is not installed, or not in PATH; workspaces need it") from error
        raise WorkspaceError(f"there is no folder {folder} (any more)") from error
    except OSError as error:
        raise WorkspaceError(f"cannot run git in {folder}: {error.strerror}") from error


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without variables that would lead git to another repository, index or program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, **_ENVIRONMENT, **more}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop git and everything that it started, if it still runs, and close the pipes."""
    if process.poll() is None:
        _kill(process)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure(folder: str, arguments: Sequence[str], answer: GitAnswer) -> Exception:
    if _NO_ROOM.search(answer.error):
        return NoRoomForSession(f"the disk is full: {_shown(arguments)} in {folder}: {answer.error}")
    return WorkspaceError(f"{_shown(arguments)} failed in {folder}: {answer.error or f'exit code {answer.code}'}")


def _shown(arguments: Sequence[str]) -> str:
    """Return the command as a person would name it, without paths and options."""
    words = [word for word in arguments[:2] if not word.startswith("-")]
    return " ".join(("git", *words[: 2 if arguments[0] in ("worktree", "submodule") else 1]))


def _text_of(fd: int) -> str:
    size = os.fstat(fd).st_size
    data = os.pread(fd, _MESSAGE_CHARACTERS, max(0, size - _MESSAGE_CHARACTERS))
    return data.decode(errors="replace").strip()
