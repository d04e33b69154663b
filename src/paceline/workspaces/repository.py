"""A git repository that workspaces are made from: where it is, what it contains, and its lock."""

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from paceline.errors import InvalidInput, WorkspaceError
from paceline.store.unit_result import GitSettings
from paceline.workspaces.folders import locked
from paceline.workspaces.git import GitCall, GitFolder, PlainFolder, own_configuration, pairs_of, run_git

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
            heads += [(entry.path, _folder_of(entry.path)) for entry in entries]
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


def _folder_of(entry: str) -> str:
    """Return the folder of a worktree by its entry; the entry if it does not say."""
    named = line_of_file(os.path.join(entry, "gitdir"))
    return entry if named is None else os.path.dirname(os.path.join(entry, named))


def read_settings(top: str) -> GitSettings:
    """Return what git may use of the user's configuration in the repository, as it is now.

    Reading it runs none of the commands that it names.
    """
    return _settings(open_repository(top).common, pairs_of(run_git(PlainFolder(top), "config", "--list", "-z")))


def _settings(common: str, pairs: Iterable[tuple[str, str]]) -> GitSettings:
    info = os.path.join(common, "info")
    used = (pair for pair in pairs if _USED.fullmatch(pair[0]) and not _LOGIN.search(pair[1]))
    return GitSettings(
        values=tuple(pair for pair in used if pair[0] not in _FILES or _is_file(common, pair[1])),
        attributes=_without_comments(os.path.join(info, "attributes")),
        exclude=_without_comments(os.path.join(info, "exclude")),
        alternates=read_alternates(common),
    )


def _is_file(common: str, path: str) -> bool:
    return os.path.isfile(os.path.join(os.path.dirname(common), os.path.expanduser(path)))


def read_alternates(common: str) -> str:
    """Return the file that names the folders from which a repository takes objects."""
    return line_of_file(os.path.join(common, "objects", "info", "alternates")) or ""


def settings_without_filters(top: str) -> GitSettings:
    """Return the settings of now for a workspace that has none stored. Nobody knows who wrote its filters.

    What the repository includes is not read: git would wait for a pipe among it.
    """
    common = open_repository(top).common
    users = pairs_of(run_git(PlainFolder("/"), "config", "--list", "-z", call=GitCall(env={"GIT_DIR": "/dev/null"})))
    pairs = (pair for pair in (*users, *own_configuration(common)) if not pair[0].startswith("filter."))
    return _settings(common, pairs)


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
        answer = run_git(
            PlainFolder(cwd),
            "rev-parse",
            "--is-bare-repository",
            "--is-inside-work-tree",
            call=GitCall(accepted=(0, 128)),
        )
        if answer.code == 0 and answer.line.split()[-1] == "true":
            return (
                run_git(PlainFolder(cwd), "rev-parse", *_ABSOLUTE, "--show-toplevel")
                .out.decode(errors="surrogateescape")
                .removesuffix("\n")
            )
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
