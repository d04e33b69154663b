"""A git repository that workspaces are made from: where it is, what it contains, its lock, and calls of git in it.

A call of git cannot hang, ask, page, sign, or run what an agent may have written. It is one process with a time-out.
git works in a `GitFolder`: it searches for no repository, and instead of the repository's configuration, which agents
can write to, it reads `GitSettings`. A `PlainFolder` is for what a person names, before an agent works there. Never
here: what is done with git.
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from paceline.errors import InvalidInput, NoRoomForSession, WorkspaceError
from paceline.store.unit_result import GitSettings
from paceline.workspaces.folders import locked

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
    is_units: ClassVar[bool] = False


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
        process, names = _start(folder, arguments, call, error_file.fileno(), ending)
        try:
            out, _ = process.communicate(call.stdin, timeout=call.seconds)
        except subprocess.TimeoutExpired as error:
            raise WorkspaceError(
                f"{_shown(arguments)} in {folder.path} did not end within {call.seconds:g} s; it was stopped",
                is_campaigns=not folder.is_units,
            ) from error
        answer = GitAnswer(code=process.returncode, out=out, error=_error_text(error_file.fileno(), names))
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)
    return answer


def stream_git(folder: GitFolder | PlainFolder, *arguments: str, call: GitCall = PLAIN) -> Iterator[bytes]:
    """Yield the output of git piece by piece. The output of a diff may be larger than the memory.

    The input must fit into a pipe: git has to read all of it before it prints much.
    """
    with tempfile.TemporaryFile() as error_file, contextlib.ExitStack() as ending:
        process, names = _start(folder, arguments, call, error_file.fileno(), ending)
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
        answer = GitAnswer(code=process.wait(), out=b"", error=_error_text(error_file.fileno(), names))
    if answer.code not in call.accepted:
        raise _failure(folder, arguments, answer)


def _start(
    folder: GitFolder | PlainFolder,
    arguments: Sequence[str],
    call: GitCall,
    error_fd: int,
    ending: contextlib.ExitStack,
) -> "tuple[subprocess.Popen[bytes], dict[str, str]]":
    """Start git. Return it, and the names of our own folders with those that they stand for.

    At the end of `ending` it has ended, with everything that it started.
    """
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
    return process, names


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
    # No command is among these settings.
    structure = {key: value for key, value in _own_configuration(folder.common) if _STRUCTURE.fullmatch(key)}
    partial_clone = _partial_clone(folder.settings)
    if partial_clone is not None:
        structure |= {"core.repositoryformatversion": "1", "extensions.partialclone": partial_clone}
    structure["core.bare"] = "false" if folder.work_tree else "true"
    return "".join(
        "[{}]\n\t{} = {}\n".format(*key.split("."), value) for key, value in structure.items() if _WORD.fullmatch(value)
    )


def _partial_clone(settings: GitSettings) -> str | None:
    return settings.value("extensions.partialclone")


def _own_configuration(common: str) -> tuple[tuple[str, str], ...]:
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
    return _pairs_of(run_git(PlainFolder("/"), "config", "--file", file, "--no-includes", "--list", "-z", call=call))


def _pairs_of(listed: GitAnswer) -> tuple[tuple[str, str], ...]:
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


def _failure(folder: GitFolder | PlainFolder, arguments: Sequence[str], answer: GitAnswer) -> Exception:
    if _NO_ROOM.search(answer.error):
        return NoRoomForSession(f"the disk is full: {_shown(arguments)} in {folder.path}: {answer.error}")
    what = answer.error or f"exit code {answer.code}"
    return WorkspaceError(f"{_shown(arguments)} failed in {folder.path}: {what}", is_campaigns=not folder.is_units)


def _shown(arguments: Sequence[str]) -> str:
    """Return the command as a person would name it, without paths and options."""
    words = [word for word in arguments[:2] if not word.startswith("-")]
    return " ".join(("git", *words[: 2 if arguments[0] in ("worktree", "submodule") else 1]))


def _error_text(fd: int, names: Mapping[str, str]) -> str:
    """Return the end of what git printed for people, with the names of the repository in place of our own."""
    size = os.fstat(fd).st_size
    data = os.pread(fd, _MESSAGE_CHARACTERS, max(0, size - _MESSAGE_CHARACTERS))
    text = data.decode(errors="replace").strip()
    for ours, theirs in names.items():
        text = text.replace(ours, theirs)
    return text


# -- the repository -------------------------------------------------------------------------------

OWN_FOLDER: Final = "paceline"
"""Our files inside of the git folder that all worktrees of a repository share."""
_ABSOLUTE: Final = ("--path-format=absolute",)
_LONGEST_LINE: Final = 1 << 16
"""Longer than any path."""
_BRANCH: Final = "ref: refs/heads/"
_USED: Final = re.compile(
    r"(?:user|author|committer)\.(?:name|email)|i18n\.\w+|index\.\w+|lfs\..*"
    r"|core\.(?:autocrlf|eol|safecrlf|symlinks|filemode|ignorecase|precomposeunicode|excludesfile|attributesfile"
    r"|sparsecheckout|sparsecheckoutcone|bigfilethreshold|compression|loosecompression|sharedrepository|trustctime)"
    r"|filter\..*\.(?:clean|smudge|process)|extensions\.partialclone|remote\..*\.(?:promisor|partialclonefilter|url)"
)
"""Keys whose values only say how files and commits are written, and the commands of filters."""
_FILES: Final = ("core.attributesfile", "core.excludesfile")
"""Keys whose values are files that git reads. It would wait for a pipe among them."""
_LOGIN: Final = re.compile(r"://[^/@]*@")
"""A URL with a name or a password is not stored."""


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository with its main tree (`top`), its git folder and the one that all its worktrees share (`common`)."""

    top: str
    git_dir: str
    common: str
    settings: GitSettings = GitSettings()

    @property
    def own_folder(self) -> str:
        """Where our records and locks of this repository lie."""
        return os.path.join(self.common, OWN_FOLDER)

    @property
    def alternates(self) -> str:
        """What its file says that names the folders from which it takes objects."""
        return line_of_file(os.path.join(self.common, "objects", "info", "alternates")) or ""

    @property
    def git(self) -> GitFolder:
        """Its commits and branches, for calls of git that need no files."""
        return GitFolder(git_dir=self.git_dir, common=self.common, settings=self.settings)

    @property
    def tree(self) -> GitFolder:
        """The user's own files in it."""
        return GitFolder(git_dir=self.git_dir, common=self.common, work_tree=self.top, settings=self.settings)

    @contextlib.contextmanager
    def locked(self) -> Iterator[GitCall]:
        """Hold the lock of the repository. Yield how to call git so that the lock lasts as long as that call."""
        with locked(os.path.join(self.own_folder, "repository.lock")) as fd:
            yield GitCall(pass_fds=(fd,))

    def commit_of(self, revision: str) -> str | None:
        """Return the commit that the revision means, or None."""
        return commit_in(self.git, revision)

    def branch_tip(self, branch: str) -> str | None:
        """Return the last commit of the branch, or None if there is no such branch."""
        return self.commit_of(f"refs/heads/{branch}")

    def checked_out(self) -> dict[str, str]:
        """Return the branches that are checked out, with their folders."""
        found: dict[str, str] = {}
        heads = [(self.common, self.top)]
        with contextlib.suppress(OSError), os.scandir(os.path.join(self.common, "worktrees")) as entries:
            heads += [(entry.path, os.path.dirname(file_of_entry(entry.path) or f"{entry.path}/")) for entry in entries]
        for folder, path in heads:
            name = line_of_file(os.path.join(folder, "HEAD")) or ""
            if name.startswith(_BRANCH) and not (folder == self.common == self.top):
                found[name.removeprefix(_BRANCH)] = path
        return found


def open_repository(top: str, settings: GitSettings | None = None) -> Repository:
    """Return the repository with that top folder. Raise `WorkspaceError` if it is gone or is no repository."""
    if not os.path.isdir(top):
        raise WorkspaceError(f"the repository {top} is gone: there is no such folder; put it back and retry")
    git_dir, common = _git_folders(top) or _asked_folders(top)
    return Repository(top=top, git_dir=git_dir, common=common, settings=settings or GitSettings())


def _git_folders(top: str) -> tuple[str, str] | None:
    """Return its git folder, and the one that all worktrees share, without a process: every step of every unit asks.

    None if the folder is not laid out as usual; git then knows better, or explains what is wrong.
    """
    found = os.path.join(top, ".git")
    found = found if os.path.lexists(found) else top
    if os.path.isfile(found):
        found = os.path.join(top, (line_of_file(os.path.realpath(found)) or "").removeprefix("gitdir: "))
    common = os.path.join(found, line_of_file(os.path.join(found, "commondir")) or "")
    is_whole = all(os.path.exists(os.path.join(common, name)) for name in ("HEAD", "objects", "refs"))
    return (os.path.realpath(found), os.path.realpath(common)) if is_whole else None


def _asked_folders(top: str) -> tuple[str, str]:
    """Ask git for the same. It must not find a repository around the folder."""
    call = GitCall(env={"GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.abspath(top))})
    out = run_git(PlainFolder(top), "rev-parse", *_ABSOLUTE, "--git-dir", "--git-common-dir", call=call).out
    git_dir, common = os.fsdecode(out).splitlines()
    return git_dir, common


def line_of_file(file: str) -> str | None:
    """Return the first bytes of a regular file as text, without the end of its line; None if that is not possible.

    An agent may have put a link, a pipe or anything else in its place.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="surrogateescape") as opened:
            text = opened.read(_LONGEST_LINE).rstrip("\n") if stat.S_ISREG(os.fstat(fd).st_mode) else "\0"
    except OSError:
        return None
    return None if "\0" in text else text


def file_of_entry(entry: str) -> str | None:
    """Return the file `.git` that the entry of a worktree names."""
    named = line_of_file(os.path.join(entry, "gitdir"))
    return None if named is None else os.path.join(entry, named)


def read_settings(top: str) -> GitSettings:
    """Return what git may use of the user's configuration in the repository, as it is now.

    Reading it runs none of the commands that it names.
    """
    repository = open_repository(top)
    info = os.path.join(repository.common, "info")
    pairs = _pairs_of(run_git(PlainFolder(top), "config", "--list", "-z"))
    used = (pair for pair in pairs if _USED.fullmatch(pair[0]) and not _LOGIN.search(pair[1]))
    return GitSettings(
        values=tuple(pair for pair in used if pair[0] not in _FILES or _is_file(repository.common, pair[1])),
        attributes=_without_comments(os.path.join(info, "attributes")),
        exclude=_without_comments(os.path.join(info, "exclude")),
        alternates=repository.alternates,
    )


def _is_file(common: str, path: str) -> bool:
    return os.path.isfile(os.path.join(os.path.dirname(common), os.path.expanduser(path)))


def _without_comments(file: str) -> str:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="surrogateescape") as opened:
            return "".join(line for line in opened if line.strip() and not line.startswith("#"))
    except OSError:
        return ""


def resolve_base(cwd: str, base: str) -> tuple[str, str]:
    """Return the top folder of the repository that `cwd` lies in, and the commit that `base` means there.

    Raise `InvalidInput` if there is no work tree, no commit, or no such revision.
    """
    top = _top_of(cwd)
    if commit_in(PlainFolder(top), "HEAD") is None and base == "HEAD":
        raise InvalidInput(f"the repository {top} has no commits; a worktree needs one: commit something first")
    commit = commit_in(PlainFolder(top), base)
    if commit is None:
        raise InvalidInput(f"base {base!r} is no commit, branch or tag of the repository {top}")
    return top, commit


def commit_in(folder: GitFolder | PlainFolder, revision: str) -> str | None:
    """Return the commit that the revision means in the folder's repository, or None."""
    if not revision or revision.startswith("-") or "\0" in revision:
        return None
    named = f"{revision}^{{commit}}"
    answer = run_git(folder, "rev-parse", "--verify", "--quiet", named, call=GitCall(accepted=(0, 1, 128)))
    return answer.line or None if answer.code == 0 else None


def count_uncommitted(top: str) -> int:
    """Return how many files of the work tree differ from its last commit. Workspaces do not contain these changes."""
    out = run_git(PlainFolder(top), "status", "--porcelain=v1", "-z", "--no-renames").out
    return out.count(b"\0")


def _top_of(cwd: str) -> str:
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {cwd}")
    try:
        asked = ("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
        answer = run_git(PlainFolder(cwd), *asked, call=GitCall(accepted=(0, 128)))
        if answer.code == 0 and answer.line.split()[-1] == "true":
            top = run_git(PlainFolder(cwd), "rev-parse", *_ABSOLUTE, "--show-toplevel").out
            return os.fsdecode(top).removesuffix("\n")
    except WorkspaceError as error:
        raise InvalidInput(str(error)) from error
    if answer.code != 0 and "not a git repository" not in answer.error:
        raise InvalidInput(f"git cannot use {cwd}: {answer.error}")
    if answer.code != 0:
        raise InvalidInput(
            f"{cwd} is in no git repository; run `git init` and commit there,"
            ' or set kind = "copy" in [campaign.workspace]'
        )
    what = "a bare repository" if answer.line.startswith("true") else "the git folder of a repository"
    raise InvalidInput(f"{cwd} is {what}, without files to work on; name a folder of a clone with a work tree")


# -- branches of units --------------------------------------------------------------------------------

_SHORT: Final = "--format=%(refname:lstrip=2)"


def delete_merged_branches(
    top: str, branches: Iterable[str], *, dry_run: bool = False, leaving: Collection[str] = ()
) -> tuple[str, ...]:
    """Delete those of the branches whose commits are all in what is checked out. Return them.

    A branch that is checked out in a worktree stays, unless the worktree is one of those that are `leaving`.
    """
    repository = open_repository(top)
    if repository.commit_of("HEAD") is None:
        return ()
    wanted = set(branches)
    with repository.locked() as call:
        out = run_git(repository.git, "for-each-ref", "--merged=HEAD", _SHORT, "refs/heads", call=call).out
        in_use = {name for name, folder in repository.checked_out().items() if folder not in leaving}
        names = out.decode(errors="replace").splitlines()
        merged = tuple(name for name in names if name in wanted and name not in in_use)
        if not dry_run:
            for name in merged:
                run_git(repository.git, "branch", "--quiet", "-D", "--", name, call=call)
    return merged


def branches_like(top: str, branch: str) -> tuple[str, ...]:
    """Return the names like the branch, with and without a number, that the repository uses for branches or folders."""
    patterns = (f"refs/heads/{branch}", f"refs/heads/{branch}-*", f"refs/heads/{branch}-*/**")
    out = run_git(open_repository(top).git, "for-each-ref", _SHORT, *patterns).out
    names = (os.fsdecode(line).removeprefix(branch).partition("/")[0] for line in out.splitlines())
    return tuple(sorted({branch + rest for rest in names}))
