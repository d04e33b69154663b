"""Calls of git that cannot hang, ask, page, sign, or run what an agent may have written.

Here: one process each, with a time-out. git works in a `GitFolder`: it searches for no repository, and instead of the
repository's configuration, which agents can write to, it reads `GitSettings`. A `PlainFolder` is for what a person
names, before an agent works there. Never here: what is done with git.
"""

import contextlib
import functools
import os
import re
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from paceline.errors import NoRoomForSession, WorkspaceError
from paceline.store.unit_result import GitSettings

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
    "diff.ignoreSubmodules=all",  # git would run itself in them, with their configuration
    "protocol.ext.allow=never",  # such a URL is a command
    "color.ui=false",
)
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_EDITOR": ":",
    "GIT_OPTIONAL_LOCKS": "0",
}
_ISOLATED: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_REPLACE_OBJECTS": "1",  # an agent can write replacements, and a commit must be what its name says
    "GIT_NO_LAZY_FETCH": "1",
}
_INHERITED: Final = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|TZ|TZDIR|TMPDIR|LANG|LANGUAGE|LC_\w+|XDG_\w+")
"""The variables that git and filters need. All others stay here: among them may be keys of accounts."""
_INHERITED_FOR_NETWORK: Final = re.compile(
    r"SSH_AUTH_SOCK|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|CURL_CA_BUNDLE", re.IGNORECASE
)
_SHARED: Final = (
    "HEAD",
    "git-crypt",
    "lfs",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "refs",
    "reftable",
    "shallow",
    "worktrees",
)
"""What git uses of a repository. Not its configuration, its hooks and `info`."""
_MADE_BY_GIT: Final = ("packed-refs", "shallow")
"""Files that git makes when it needs them."""
_STRUCTURE: Final = re.compile(r"core\.repositoryformatversion|extensions\.(?:objectformat|refstorage)")
_WORD: Final = re.compile(r"[\w-]+")


class GitFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A repository with all that git must know of it: with a `work_tree`, the files that it works on."""

    git_dir: str
    common: str
    """The git folder that all worktrees share."""
    work_tree: str | None = None
    settings: GitSettings = GitSettings()
    is_units: bool = False
    """Whether a failure is the problem of one unit."""

    @property
    def path(self) -> str:
        """The folder as a person knows it."""
        return self.work_tree or self.git_dir.removesuffix("/.git")


class PlainFolder(msgspec.Struct, frozen=True):
    """A folder whose repository git finds itself, with its configuration. Never one that an agent works in."""

    path: str


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
    uses_network: bool = False
    """Whether it reaches another repository, with the user's own way to log in there."""


PLAIN: Final = GitCall()
OUTSIDE: Final = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": "/dev/null"}
"""What lets git use no repository at all, and no configuration."""


def run_git(folder: GitFolder | PlainFolder, *arguments: str, call: GitCall = PLAIN) -> GitAnswer:
    """Run git in the folder. Raise `WorkspaceError` with git's own words if it fails or takes too long."""
    with tempfile.TemporaryFile() as error_file, contextlib.ExitStack() as ending:
        process, said = _start(folder, arguments, call, error_file.fileno(), ending)
        try:
            out, _ = process.communicate(call.stdin, timeout=call.seconds)
        except subprocess.TimeoutExpired as error:
            raise WorkspaceError(
                f"{_shown(arguments)} in {folder.path} did not end within {call.seconds:g} s; it was stopped",
                is_campaigns=not _is_units(folder),
            ) from error
        answer = GitAnswer(code=process.returncode, out=out, error=said.text())
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)
    return answer


def stream_git(folder: GitFolder | PlainFolder, *arguments: str, call: GitCall = PLAIN) -> Iterator[bytes]:
    """Yield the output of git piece by piece. The output of a diff may be larger than the memory.

    The input must fit into a pipe: git has to read all of it before it prints much.
    """
    with tempfile.TemporaryFile() as error_file, contextlib.ExitStack() as ending:
        process, said = _start(folder, arguments, call, error_file.fileno(), ending)
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
        answer = GitAnswer(code=process.wait(), out=b"", error=said.text())
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)


class _ErrorOutput(msgspec.Struct):
    """What git prints for people. Names of our own folder are those of the repository there."""

    fd: int
    names: Mapping[str, str]

    def text(self) -> str:
        text = _text_of(self.fd)
        for ours, theirs in self.names.items():
            text = text.replace(ours, theirs)
        return text


def _start(
    folder: GitFolder | PlainFolder,
    arguments: Sequence[str],
    call: GitCall,
    error_fd: int,
    ending: contextlib.ExitStack,
) -> "tuple[subprocess.Popen[bytes], _ErrorOutput]":
    """Start git. At the end of `ending` it has ended, with everything that it started."""
    options = [part for setting in (*_CONFIGURATION, *call.config) for part in ("-c", setting)]
    names: dict[str, str] = {}
    env = _environment(call)
    try:
        if isinstance(folder, GitFolder):
            ours = ending.enter_context(_isolated_repository(folder))
            names = {ours: folder.common, os.path.dirname(ours): os.path.dirname(folder.common)}
            env |= _folder_environment(folder, ours)
        cwd = folder.path if isinstance(folder, PlainFolder) else folder.work_tree or folder.git_dir
        process = subprocess.Popen(
            ["git", *options, *arguments],
            cwd=cwd,
            env={**env, **call.env},
            stdin=subprocess.PIPE if call.stdin_fd is None else call.stdin_fd,
            stdout=subprocess.PIPE,
            stderr=error_fd,
            pass_fds=call.pass_fds,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if os.path.isdir(folder.path):
            raise WorkspaceError("git is not installed, or not in PATH; workspaces need it") from error
        raise WorkspaceError(f"there is no folder {folder.path} (any more)") from error
    except OSError as error:
        raise WorkspaceError(f"cannot run git in {folder.path}: {error.strerror}") from error
    ending.callback(_end, process)
    return process, _ErrorOutput(error_fd, names)


def _environment(call: GitCall) -> dict[str, str]:
    """Return our environment, less what git does not need, and with what keeps it quiet."""
    kept = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    if call.uses_network:
        kept |= {name: value for name, value in os.environ.items() if _INHERITED_FOR_NETWORK.fullmatch(name)}
    return {**kept, **_ENVIRONMENT}


def _folder_environment(folder: GitFolder, common: str) -> dict[str, str]:
    """Return the variables that say which repository it is, and what of the user's configuration counts."""
    settings = folder.settings
    # Without `required`, git would store the unfiltered content if the command fails.
    required = tuple((f"filter.{name}.required", "true") for name in settings.filters)
    values = (*settings.values, *required)
    env = {**_ISOLATED, "GIT_DIR": folder.git_dir, "GIT_COMMON_DIR": common, "GIT_CONFIG_COUNT": str(len(values))}
    if _partial_clone(settings) is not None:
        del env["GIT_NO_LAZY_FETCH"]
    for number, (key, value) in enumerate(values):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if folder.work_tree is not None:
        env |= {"GIT_WORK_TREE": folder.work_tree, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder.work_tree)}
    return env


@contextlib.contextmanager
def _isolated_repository(folder: GitFolder) -> Iterator[str]:
    """Yield a folder that stands for the repository's git folder: the same commits, and a configuration of ours."""
    with tempfile.TemporaryDirectory(prefix="paceline-git-") as temporary:
        ours = os.path.join(temporary, ".git")
        os.makedirs(os.path.join(ours, "info"))
        for name in _SHARED:
            shared = os.path.join(folder.common, name)
            if name in _MADE_BY_GIT or os.path.lexists(shared):
                os.symlink(shared, os.path.join(ours, name))
        _write(os.path.join(ours, "config"), _configuration(folder))
        _write(os.path.join(ours, "info", "attributes"), folder.settings.attributes)
        _write(os.path.join(ours, "info", "exclude"), folder.settings.exclude)
        yield ours


def _configuration(folder: GitFolder) -> str:
    """Return the file that says how the repository is built."""
    structure = dict(_structure(folder.common))
    partial_clone = _partial_clone(folder.settings)
    if partial_clone is not None:
        structure |= {"core.repositoryformatversion": "1", "extensions.partialclone": partial_clone}
    structure["core.bare"] = "false" if folder.work_tree else "true"
    return "".join(
        "[{}]\n\t{} = {}\n".format(*key.split("."), value) for key, value in structure.items() if _WORD.fullmatch(value)
    )


def _partial_clone(settings: GitSettings) -> str | None:
    return settings.value("extensions.partialclone")


def _structure(common: str) -> Iterator[tuple[str, str]]:
    """Yield how the repository is built. No command is among these settings."""
    return ((key, value) for key, value in own_configuration(common) if _STRUCTURE.fullmatch(key))


def own_configuration(common: str) -> tuple[tuple[str, str], ...]:
    """Return keys and values of the repository's own configuration, without what it includes.

    An agent may have written it.
    """
    file = os.path.join(common, "config")
    try:
        found = os.stat(file)
    except OSError:
        return ()
    if not stat.S_ISREG(found.st_mode):
        return ()  # an agent put a pipe there, and git would wait for it
    return _read_configuration(file, (found.st_ino, found.st_mtime_ns, found.st_size))


@functools.lru_cache(maxsize=256)
def _read_configuration(file: str, _version: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Read it with git. It is kept as long as the file is the same, because every step of every unit needs it."""
    call = GitCall(env=OUTSIDE)
    return pairs_of(run_git(PlainFolder("/"), "config", "--file", file, "--no-includes", "--list", "-z", call=call))


def pairs_of(listed: GitAnswer) -> tuple[tuple[str, str], ...]:
    """Return the keys and values that `git config --list -z` printed."""
    entries = (os.fsdecode(entry).partition("\n") for entry in listed.out.split(b"\0") if entry)
    return tuple((key, value) for key, _, value in entries)


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="utf-8", errors="surrogateescape") as opened:
        opened.write(text)


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


def _is_units(folder: GitFolder | PlainFolder) -> bool:
    return isinstance(folder, GitFolder) and folder.is_units


def _failure(folder: GitFolder | PlainFolder, arguments: Sequence[str], answer: GitAnswer) -> Exception:
    if _NO_ROOM.search(answer.error):
        return NoRoomForSession(f"the disk is full: {_shown(arguments)} in {folder.path}: {answer.error}")
    what = answer.error or f"exit code {answer.code}"
    return WorkspaceError(f"{_shown(arguments)} failed in {folder.path}: {what}", is_campaigns=not _is_units(folder))


def _shown(arguments: Sequence[str]) -> str:
    """Return the command as a person would name it, without paths and options."""
    words = [word for word in arguments[:2] if not word.startswith("-")]
    return " ".join(("git", *words[: 2 if arguments[0] in ("worktree", "submodule") else 1]))


def _text_of(fd: int) -> str:
    size = os.fstat(fd).st_size
    data = os.pread(fd, _MESSAGE_CHARACTERS, max(0, size - _MESSAGE_CHARACTERS))
    return data.decode(errors="replace").strip()
