"""Submodules of a workspace, and what a commit would miss or change: repositories in it, work in them, unknown filters.

Submodules are filled from the clones that the main tree has. The network is never used. One that the main tree has not
cloned, or whose commit is not in that clone, stays an empty folder, as git leaves it. The checks raise before a commit
or a removal. git skips what lies in another repository, and it stores content unfiltered if it does not know a filter.
Never here: the commit itself.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from paceline.errors import UncommittedWork, WorkspaceError
from paceline.workspaces.folders import WorkspaceLocation
from paceline.workspaces.repository import GitCall, GitFolder, Repository, commit_in, line_of_file, run_git


class SubmoduleCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule that the main tree has cloned. `names` leads to it: more than one if it is nested."""

    names: tuple[str, ...]
    commit: str
    clone: str
    """The git folder of the clone."""

    def clone_in(self, common: str) -> str:
        """Return where a repository with that git folder has its clone."""
        return os.path.join(common, *(part for name in self.names for part in ("modules", name)))


class FilledSubmodule(msgspec.Struct, frozen=True, kw_only=True):
    """A submodule of a workspace, as `fill_submodules` has made it. `commit` is that of the base."""

    path: str
    git: GitFolder
    commit: str
    clone: str | None
    """The git folder of the user's own clone."""
    is_nested: bool
    """Whether it belongs to another submodule."""


def cloned_submodules(top: str, common: str, commit: str, names: tuple[str, ...] = ()) -> Iterator[SubmoduleCommit]:
    """Yield the submodules of a commit, also nested ones, whose commits the main tree has."""
    for name, path, wanted in _submodules_of_commit(_bare(common), commit):
        clone = _clone_of(top, common, name, path)
        if clone is not None and commit_in(_bare(clone), wanted) is not None:
            yield SubmoduleCommit(names=(*names, name), commit=wanted, clone=clone)
            yield from cloned_submodules(os.path.join(top, path), clone, wanted, (*names, name))


def fill_submodules(top: str, common: str, git: GitFolder, lock_fd: int) -> None:
    """Check out every submodule of the workspace, also nested ones, whose commit the main tree has."""
    if not os.path.isfile(os.path.join(git.path, ".gitmodules")):
        return
    for name, path in _submodules(git, "--file=.gitmodules"):
        mode, _, rest = run_git(git, "ls-files", "--stage", "--", path).line.partition(" ")
        commit = rest.split()[0] if mode == "160000" else None
        clone = _clone_of(top, common, name, path)
        if commit is None or clone is None or commit_in(_bare(clone), commit) is None:
            continue
        call = GitCall(
            config=(f"submodule.{name}.url={clone}", "protocol.file.allow=always"),
            env={"GIT_ALLOW_PROTOCOL": "file"},
            pass_fds=(lock_fd,),
        )
        run_git(git, "submodule", "--quiet", "update", "--init", "--", path, call=call)
        filled = _filled_in(os.path.join(git.git_dir, "modules", name), os.path.join(git.path, path))
        if filled is not None:
            fill_submodules(os.path.join(top, path), clone, filled, lock_fd)


def filled_submodules(repository: Repository, entry: str, workspace: str, base: str) -> Iterator[FilledSubmodule]:
    """Yield the submodules of the base that are filled in the workspace, also nested ones.

    A folder in which an agent has put another repository is left out.
    """
    if not os.path.isdir(os.path.join(entry, "modules")):
        return
    found = _submodules_of_commit(_bare(repository.common), base)
    pending = [("", repository.common, entry, each) for each in found]
    while pending:
        prefix, common, entry, (name, path, commit) = pending.pop(0)
        whole = os.path.join(prefix, path)
        git_dir = os.path.join(entry, "modules", name)
        git = _filled_in(git_dir, os.path.join(workspace, whole))
        if git is not None:
            clone = _clone_of(os.path.join(repository.top, prefix), common, name, path)
            yield FilledSubmodule(path=whole, git=git, commit=commit, clone=clone, is_nested=bool(prefix))
            inner = _submodules_of_commit(_bare(git_dir), commit)
            pending += [(whole, clone or "", git_dir, each) for each in inner]


def _filled_in(git_dir: str, folder: str) -> GitFolder | None:
    """Return how to call git in a submodule of a workspace; None if it is not as it was made."""
    line = None if os.path.islink(folder) else line_of_file(os.path.join(folder, ".git"))
    if line is None:
        return None
    is_own = os.path.realpath(os.path.join(folder, line.removeprefix("gitdir: "))) == os.path.realpath(git_dir)
    if not is_own or os.path.islink(git_dir) or not os.path.isfile(os.path.join(git_dir, "HEAD")):
        return None
    return GitFolder(git_dir=git_dir, common=git_dir, work_tree=folder, is_units=True)


def _submodules_of_commit(git: GitFolder, commit: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, path and commit of each submodule."""
    if run_git(git, "cat-file", "-e", f"{commit}:.gitmodules", call=GitCall(accepted=(0, 1, 128))).code != 0:
        return
    for name, path in _submodules(git, f"--blob={commit}:.gitmodules"):
        mode, _, rest = run_git(git, "ls-tree", commit, "--", path).line.partition(" ")
        if mode == "160000":
            yield name, path, rest.split()[1]


def _submodules(git: GitFolder, source: str) -> list[tuple[str, str]]:
    """Return name and path of each submodule. A name that leads out of its folder is left out, as git does."""
    call = GitCall(accepted=(0, 1))
    out = run_git(git, "config", "-z", source, "--get-regexp", r"^submodule\..*\.path$", call=call).out
    pairs = (os.fsdecode(entry).partition("\n") for entry in out.split(b"\0") if entry)
    named = [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, _, path in pairs]
    return [(name, path) for name, path in named if _stays_inside(name) and _stays_inside(path)]


def _stays_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")


def _clone_of(top: str, common: str, name: str, path: str) -> str | None:
    """Return the git folder of the submodule in the main tree, or None if it was not cloned."""
    for folder in (os.path.join(common, "modules", name), os.path.join(top, path, ".git")):
        if os.path.isfile(os.path.join(folder, "HEAD")):
            return folder
    return None


def _bare(git_dir: str) -> GitFolder:
    return GitFolder(git_dir=git_dir, common=git_dir)


# -- what a commit would miss ------------------------------------------------------------------------

_MOST_NAMED: Final = 3
"""How many paths an error names."""
_ATTRIBUTES: Final = ".gitattributes"
_OBJECTS: Final = re.compile(r"[0-9a-f]{2}")
"""The folders of objects. git makes no links there."""
_ALL: Final = (b"*", b"**", b"**/*")
"""Patterns of an ignore file that match every path in its folder."""
_NO_FILTER: Final = ("unspecified", "unset", "set")
"""What git answers for a path that goes through no filter."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk through a workspace has found. Paths are relative to it."""

    repositories: tuple[str, ...]
    """Folders with a `.git` of their own."""
    names_filters: bool
    """Whether a file of attributes in it may name a filter."""
    ignoring_all: tuple[str, ...]
    """Files `.gitignore` that hide whatever is new in their folder."""
    unreadable: tuple[str, ...]


def read_contents(path: str) -> Contents:
    """Walk through all folders of the workspace. Links are not followed."""
    repositories: list[str] = []
    ignoring_all: list[str] = []
    unreadable: list[str] = []
    names_filters = False
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        if folder != path:
                            repositories.append(os.path.relpath(folder, path))
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.name in (_ATTRIBUTES, ".gitignore") and not entry.is_symlink():
                        _check_regular(entry)  # git would wait for somebody to write into a pipe
                        with open(entry.path, "rb") as opened:
                            data = opened.read()
                        if entry.name == _ATTRIBUTES:
                            names_filters = names_filters or b"filter" in data
                        elif _has_all(data):
                            ignoring_all.append(os.path.relpath(entry.path, path))
        except OSError:
            unreadable.append(os.path.relpath(folder, path))
    return Contents(
        repositories=tuple(sorted(repositories)),
        names_filters=names_filters,
        ignoring_all=tuple(sorted(ignoring_all)),
        unreadable=tuple(unreadable),
    )


@contextlib.contextmanager
def scratch_index(git: GitFolder) -> Iterator[GitCall]:
    """Yield how to call git with a copy of the index, so that the agent's index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="paceline-index-") as folder:
        index = os.path.join(folder, "index")
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(os.path.join(git.git_dir, "index"), index)
        yield GitCall(env={"GIT_INDEX_FILE": index})


def checked_submodules(git: GitFolder, repository: Repository, location: WorkspaceLocation) -> list[FilledSubmodule]:
    """Return the submodules of the workspace. Raise `UncommittedWork` if one has work that is nowhere else."""
    found = list(filled_submodules(repository, git.git_dir, location.path, location.base or "HEAD"))
    for each in found:
        out = run_git(each.git, "status", "--porcelain=v1", "-z").out
        if out:
            raise UncommittedWork(
                f"the submodule {each.path} of {location.path} has changes that are in no commit, and a commit of the"
                " workspace would not have them; its files are kept: commit and push them there, then"
                " `paceline retry UNIT`"
            )
        head = commit_in(each.git, "HEAD")
        if head is not None and head != each.commit and not (each.clone and commit_in(_bare(each.clone), head)):
            raise UncommittedWork(
                f"the submodule {each.path} of {location.path} is at {head[:12]}, a commit that only this workspace"
                f" has; its files are kept: push it, fetch it in the submodule of {repository.top}, then"
                " `paceline retry UNIT`"
            )
    return found


def check_no_repository(
    git: GitFolder, contents: Contents, submodules: Iterable[FilledSubmodule], *, also_ignored: bool
) -> None:
    """Raise `UncommittedWork` if there is another repository in the workspace: no commit has the work in it."""
    known = {each.path for each in submodules}
    found = [path for path in contents.repositories if path not in known]
    if found and not also_ignored:
        call = GitCall(stdin=b"".join(os.fsencode(path) + b"\0" for path in found), accepted=(0, 1))
        out = run_git(git, "check-ignore", "--no-index", "-z", "--stdin", call=call).out
        ignored = {os.fsdecode(path) for path in out.split(b"\0")}
        found = [path for path in found if path not in ignored]
    if found:
        raise UncommittedWork(
            f"{git.path} has another git repository in it, in {_listed(found)}: a commit of the workspace does not have"
            f" the work there; all files are kept: remove {found[0]}/.git if the files are to be part of the unit's"
            " work, then `paceline retry UNIT`"
        )


def check_gitlinks(git: GitFolder, base: str, submodules: Iterable[FilledSubmodule]) -> None:
    """Raise `UncommittedWork` if the index holds only the name of a commit where work should be."""
    known = {each.path for each in submodules}
    out = run_git(git, "diff", "--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=none", base).out
    parts = iter(out.split(b"\0"))
    found = [
        os.fsdecode(path)
        for head, path in zip(parts, parts, strict=False)
        if head.split(b" ")[1:2] == [b"160000"] and os.fsdecode(path) not in known
    ]
    if found:
        raise UncommittedWork(
            f"{git.path} would commit {_listed(found)} as the name of a commit of another repository, without its"
            " files; all files are kept: add the files themselves, or the submodule in your repository first, then"
            " `paceline retry UNIT`"
        )


def check_objects(repository: Repository, location: WorkspaceLocation) -> None:
    """Raise if the repository has taken objects from a new folder since the plan was added: they may go away."""
    objects = os.path.join(repository.common, "objects")
    inside = os.path.realpath(location.path) + "/"
    is_inside = any(
        (os.path.realpath(folder) + "/").startswith(inside) for folder in (objects, os.path.join(objects, "pack"))
    )
    with os.scandir(objects) as entries:
        linked = [entry.path for entry in entries if entry.is_symlink() and _OBJECTS.fullmatch(entry.name)]
    if linked:
        raise UncommittedWork(
            f"the repository {repository.top} of {location.path} would store the work in another folder, because"
            f" {linked[0]} is a link; all files are kept: replace it by a folder, then `paceline retry UNIT`"
        )
    known = repository.settings.alternates
    if is_inside or (known is not None and repository.alternates != known):
        raise UncommittedWork(
            f"the repository {repository.top} of {location.path} takes objects from another folder since the plan was"
            f" added ({os.path.join(objects, 'info', 'alternates')}); all files are kept: undo that, then"
            " `paceline retry UNIT`"
        )


def show_all_changes(git: GitFolder, call: GitCall) -> None:
    """Let the index hide no change: an agent can mark files as unchanged, or as not checked out."""
    out = run_git(git, "ls-files", "-v", "-z", call=call).out
    entries = [(entry[:1], entry[2:]) for entry in out.split(b"\0") if entry]
    top = os.fsencode(git.path)
    skipped = [path for tag, path in entries if tag in b"Ss" and os.path.lexists(os.path.join(top, path))]
    unchanged = [path for tag, path in entries if tag.islower()]
    for option, paths in (("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)):
        if paths:
            named = msgspec.structs.replace(call, stdin=b"".join(path + b"\0" for path in paths))
            run_git(git, "update-index", option, "-z", "--stdin", call=named)


def pathspecs_without(paths: Iterable[str]) -> tuple[str, ...]:
    """Return what names all files but these."""
    return (".", *(f":(exclude,top,literal){path}" for path in paths))


def check_filters(git: GitFolder, contents: Contents, base: str) -> None:
    """Raise `WorkspaceError` if staged content should have gone through a filter that is not known, or not the same.

    Known are those that the user had configured when the plan was added.
    """
    settings = git.settings
    may_now = contents.names_filters or "filter" in settings.attributes
    if not may_now and not (settings.filters and _base_names_filters(git, base)):
        return
    out = run_git(git, "diff", "--cached", "--name-only", "-z", "--no-renames", "--diff-filter=d", base).out
    now = _filters_of(git, out, GitCall())
    with tempfile.TemporaryDirectory(prefix="paceline-index-") as folder:
        index = GitCall(env={"GIT_INDEX_FILE": os.path.join(folder, "index")})
        run_git(git, "read-tree", base, call=index)
        before = _filters_of(git, out, index, "--cached")
    for path, name in now.items():
        was = before.get(path)
        if name is not None and name not in settings.filters:
            raise _unfiltered(git, f"{path} is to go through the filter {name!r}, which was not configured")
        if was in settings.filters and name != was:
            raise _unfiltered(git, f"{path} went through the filter {was!r}, and now it would not: it was configured")


def check_ignored(git: GitFolder, contents: Contents, base: str, uncommitted: Sequence[str]) -> None:
    """Raise `UncommittedWork` if an ignore file of the unit hides all that is new in a folder that the base has.

    Tools write such files into folders that they make, for caches. In a folder of the base it would hide the work.
    """
    for path in contents.ignoring_all:
        folder = os.path.dirname(path)
        if folder and not run_git(git, "ls-tree", "-d", base, "--", folder).out:
            continue
        of_base = run_git(git, "cat-file", "blob", f"{base}:{path}", call=GitCall(accepted=(0, 128)))
        if of_base.code == 0 and _has_all(of_base.out):
            continue
        named = folder or "."
        call = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z", "--", named)
        found = {os.fsdecode(each).rstrip("/") for each in run_git(git, *call).out.split(b"\0") if each}
        hidden = sorted(found - {path, *uncommitted})
        stdin = b"".join(os.fsencode(each) + b"\0" for each in hidden)
        checked = GitCall(stdin=stdin, accepted=(0, 1))
        parts = iter(run_git(git, "check-ignore", "--verbose", "-z", "--stdin", call=checked).out.split(b"\0"))
        work = [
            os.fsdecode(name)
            for source, _, pattern, name in zip(parts, parts, parts, parts, strict=False)
            if os.fsdecode(source) == path and pattern.strip(b"/") in _ALL
        ]
        if work:
            raise UncommittedWork(
                f"{path} in {git.path} hides all new files, so the commit would not have {_listed(work)};"
                " all files are kept: name there only what is no work, then `paceline retry UNIT`"
            )


def _unfiltered(git: GitFolder, what: str) -> WorkspaceError:
    return WorkspaceError(
        f"the work in {git.path} is not committed: {what} when the plan was added; all files are kept: undo the change"
        " of .gitattributes there and `paceline retry UNIT`, or configure the filter and add the plan again",
        is_campaigns=False,
    )


def _filters_of(git: GitFolder, paths: bytes, call: GitCall, *options: str) -> Mapping[str, str | None]:
    call = msgspec.structs.replace(call, stdin=paths)
    parts = iter(run_git(git, "check-attr", "-z", "--stdin", *options, "filter", call=call).out.split(b"\0"))
    found: dict[str, str | None] = {}
    for path, _, value in zip(parts, parts, parts, strict=False):
        name = os.fsdecode(value)
        found[os.fsdecode(path)] = None if name in _NO_FILTER else name
    return found


def _base_names_filters(git: GitFolder, base: str) -> bool:
    words = ("grep", "--quiet", "--fixed-strings", "-e", "filter", base, "--", f":(glob)**/{_ATTRIBUTES}")
    return run_git(git, *words, call=GitCall(accepted=(0, 1))).code == 0


def _has_all(ignored: bytes) -> bool:
    return any(line.strip().strip(b"/") in _ALL for line in ignored.split(b"\n"))


def _check_regular(entry: "os.DirEntry[str]") -> None:
    if not entry.is_file(follow_symlinks=False):
        raise WorkspaceError(
            f"{entry.path} is no file that git can read; remove it, then `paceline retry UNIT`", is_campaigns=False
        )


def _listed(paths: list[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
