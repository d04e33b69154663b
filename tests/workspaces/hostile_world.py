"""A user's machine with everything that an agent could damage from inside of its workspace.

    outer/                a repository of the user around everything, such as one for dotfiles
      project/            the repository of the units, with the user's own uncommitted file
        .paceline/        the home, inside of the project and ignored there
      worker/             the home of a worker, which has a mirror of the project
    receiver/             a clone that takes bundles
    user/                 the home folder of the user
    elsewhere/            where an agent may put things

Unit `a` is the agent's. Unit `b` is its neighbour, with work of its own. The machine is made once; each test gets a
copy of it at the same path.
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

import msgspec
from tests.hosts.two_machines import TwoMachines
from tests.workspaces.conftest import TestRepository, write

from paceline.store.interface import WorkspaceSettings
from paceline.workspaces import Prepared, WorkspaceLocation, prepare

WORK: Final = b"the work of the agent\n"
SECRETS: Final = ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN")
SECRET: Final = "a-secret-of-the-engine"
PATIENCE_SECONDS: Final = 30.0
"""Far longer than any operation takes here. Only one that hangs meets it."""
COMMANDS: Final = [
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "diff.x.textconv",
    "diff.x.command",
    "diff.external",
    "merge.x.driver",
    "core.fsmonitor",
    "core.sshCommand",
    "core.editor",
    "sequence.editor",
    "core.pager",
    "credential.helper",
    "gpg.program",
    "core.askPass",
    "uploadpack.packObjectsHook",
    "core.alternateRefsCommand",
    "interactive.diffFilter",
    "pager.diff",
    "pager.status",
    "trailer.x.command",
    "alias.status",
    "alias.add",
    "alias.commit",
]
OWN_ENTRIES: Final = ("worktrees/a", "worktrees/a.relink", "worktrees/c")
NO_NAMES: Final = "names: "
BRANCH: Final = "paceline/docs/a"
WHO: Final = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, with its two places: `place` for `a` and `neighbour` for `b`. `mirror` is None without a worker."""

    root: Path
    place: WorkspaceLocation
    neighbour: WorkspaceLocation
    settings: WorkspaceSettings
    mirror: Path | None = None

    @property
    def outer(self) -> Path:
        return self.root / "outer"

    @property
    def project(self) -> Path:
        return self.outer / "project"

    @property
    def home(self) -> Path:
        return self.project / ".paceline"

    @property
    def later(self) -> WorkspaceLocation:
        """The place of unit `c`, which has not begun."""
        path = f"{self.place.path[:-1]}c"
        return msgspec.structs.replace(self.place, path=path, cwd=path, branch=f"{self.branch[:-1]}c")

    @property
    def branch(self) -> str:
        assert self.place.branch is not None
        return self.place.branch

    def two_machines(self) -> TwoMachines:
        repository = TestRepository(self.project, self.home)
        return TwoMachines(self.outer, repository)


class Agent:
    """What an agent in the workspace of unit `a` can do. It left `work` in the folder `at`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.path = Path(machine.place.path)
        self.neighbour = Path(machine.neighbour.path)
        self.elsewhere = machine.root / "elsewhere"
        self.common = machine.mirror or machine.project / ".git"
        self.top = machine.mirror or machine.project
        self.entry = self.common / "worktrees" / "a"
        self.work: dict[bytes, bytes] = {b"work.txt": WORK}
        self.filtered: dict[bytes, bytes] = {}
        """What a filter of the user makes of some of it."""
        self.at = self.path
        self.marker = machine.root / "elsewhere" / "ran"
        self.own_filter_marker = machine.root / "user" / "own-filter-ran"
        self.canary = str(machine.root / "elsewhere" / "canary")

    @property
    def kept(self) -> dict[bytes, bytes]:
        """The work as a commit has it."""
        return self.work | self.filtered

    def git(self, *arguments: str, cwd: Path | None = None, code: int | None = 0) -> str:
        """Run git with the agent's own environment, which has no secrets."""
        return user_git(cwd or self.path, *arguments, code=code)

    def write(self, path: str, text: str = WORK.decode()) -> Path:
        write(self.path / path, text)
        return self.path / path

    def config(self, *pairs: str, file: str | None = None) -> None:
        """Set keys in the configuration that all worktrees share, or in another file."""
        where = ("--file", file or str(self.common / "config"))
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            user_git(self.elsewhere, "config", *where, key, value)

    def evil_config(self, file: str | None = None) -> None:
        """Plant the canary behind every key by which git runs a command in a workspace."""
        for key in COMMANDS:
            self.config(key, ("!" if key.startswith("alias") else "") + self.canary, file=file)

    def replace_work(self, *paths: str | bytes) -> None:
        """Say that the work lies in other files."""
        self.work = {os.fsencode(path): WORK for path in paths}

    def move_away(self) -> Path:
        """Move the workspace away, with the work."""
        self.at = self.elsewhere / "moved"
        self.path.rename(self.at)
        return self.at


def user_git(cwd: Path | str, *arguments: str, code: int | None = 0) -> str:
    """Run git as a user would. With `code=None` any exit code is right."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME")}
    env = {**kept, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "GIT_TEMPLATE_DIR": "", "GIT_EDITOR": "true"}
    options = (*WHO, "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", "-c", "core.fsmonitor=false")
    ended = subprocess.run(
        ["git", *options, *arguments], cwd=cwd, env=env, capture_output=True, text=True, errors="replace", check=False
    )
    assert code is None or ended.returncode == code, (arguments, ended.returncode, ended.stderr)
    return ended.stdout.strip()


def build(root: Path) -> Machine:
    """Make the machine with two workspaces on it."""
    outer, project = root / "outer", root / "outer" / "project"
    for folder in (root / "elsewhere", root / "user", project):
        folder.mkdir(parents=True)
    _write_program(root / "elsewhere" / "canary", root / "elsewhere" / "ran")
    _write_program(root / "user" / "own-filter", root / "user" / "own-filter-ran", then="tr a-z b-za")
    user_git(outer, "init", "-q")
    write(outer / "dotfile.txt", "dot\n")
    user_git(outer, "add", "dotfile.txt")
    user_git(outer, "commit", "-qm", "first")
    write(outer / "mine.txt", "the user's own, uncommitted\n")
    user_git(project, "init", "-q")
    write(project / "kept.txt", "kept\n")
    write(project / "src" / "a.txt", "one\ntwo\nthree\n")
    write(project / ".gitignore", ".env\ncache/\n.paceline/\n")
    write(project / ".gitattributes", "*.own filter=own\n")
    user_git(project, "config", "filter.own.clean", str(root / "user" / "own-filter"))
    user_git(project, "add", "-A")
    user_git(project, "commit", "-qm", "first")
    user_git(root, "clone", "-q", "--no-local", str(project), "receiver")
    write(project / "mine.txt", "the user's own, uncommitted\n")
    repository = TestRepository(project, project / ".paceline")
    settings = repository.settings()
    place, neighbour = (repository.place(unit, settings) for unit in "ab")
    return Machine(root=root, place=place, neighbour=neighbour, settings=settings)


def prepare_here(machine: Machine) -> Machine:
    made = (made_place(each, prepare(each, machine.settings)) for each in (machine.place, machine.neighbour))
    place, neighbour = made
    found = msgspec.structs.replace(machine, place=place, neighbour=neighbour)
    _work(found)
    return found


async def prepare_on_host(machine: Machine) -> Machine:
    machines = machine.two_machines()
    new = [machines.place(unit, machine.settings) for unit in "ab"]
    place, neighbour = [made_place(each, await machines.job(prepare, each, machine.settings)) for each in new]
    (mirror,) = (machines.home / "repositories").glob("*.git")
    found = msgspec.structs.replace(machine, place=place, neighbour=neighbour, mirror=mirror)
    _work(found)
    return found


def made_place(place: WorkspaceLocation, prepared: Prepared) -> WorkspaceLocation:
    """Return the place as it is stored with a unit whose workspace was made."""
    return msgspec.structs.replace(place, uncommitted=prepared.uncommitted)


def _work(machine: Machine) -> None:
    """Leave uncommitted work in both workspaces, and a commit on the neighbour's branch."""
    write(f"{machine.neighbour.path}/committed.txt", "of the neighbour\n")
    user_git(machine.neighbour.path, "add", "-A")
    user_git(machine.neighbour.path, "commit", "-qm", "of the neighbour")
    write(f"{machine.neighbour.path}/b.txt", "of the neighbour\n")
    write(f"{machine.place.path}/work.txt", WORK.decode())


def _write_program(file: Path, marker: Path, then: str = "cat") -> None:
    """Write a program that notes that it ran, with its arguments and its environment."""
    file.write_text(f'#!/bin/sh\n{{ echo "ran: $0 $*"; env; }} >> {marker}\nexec {then}\n')
    file.chmod(0o755)


def copy_machine(frozen: Path, root: Path) -> None:
    """Put the machine back as it was made."""
    delete(root)
    shutil.copytree(frozen, root, symlinks=True)


def delete(root: Path) -> None:
    def make_writable(function: Callable[..., object], path: str, _: object) -> None:
        for each in (os.path.dirname(path), path):
            with contextlib.suppress(OSError):
                if not os.path.islink(each):
                    os.chmod(each, 0o700)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if function is not os.unlink else os.unlink(path)

    shutil.rmtree(root, onerror=make_writable)
    assert not root.exists()


# -- what must stay as it is ---------------------------------------------------------------------------------


def fingerprint(machine: Machine, agent: Agent) -> dict[str, str]:
    """Return everything that is not the unit's own, bit by bit: of the user, of the neighbour, and of programs.

    The unit's own are its folder, its branch and its registration, and what Paceline notes in a repository.
    """
    own = [
        machine.place.path,
        f"{machine.place.path}.relink",
        machine.later.path,
        str(machine.home / "patches"),
        str(agent.marker),
    ]
    own += [str(machine.outer / name) for name in ("leader-inbox", "worker/transfers", "worker/spool")]
    own += [f"{machine.root}/{each}" for each in ("receiver", "user/own-filter-ran", "elsewhere/worktrees/a")]
    own_branches = (machine.branch, machine.later.branch)
    for common in {machine.project / ".git", agent.common}:
        own += [str(common / name) for name in ("objects", "paceline", *OWN_ENTRIES)]
        own += [f"{common}/{kind}refs/heads/{name}" for kind in ("", "logs/") for name in own_branches]
    found = {path: _content(path) for path in _files_below(str(machine.root), frozenset(own))}
    return {path: text for path, text in found.items() if text != NO_NAMES}


def _files_below(folder: str, left_out: frozenset[str]) -> Iterator[str]:
    pending = [folder]
    while pending:
        try:
            entries = [*os.scandir(pending.pop())]
        except PermissionError:
            continue
        for entry in entries:
            if entry.path in left_out:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif not (entry.name.endswith(".lock") and "/paceline/" in entry.path):
                yield entry.path


def _content(path: str) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"-> {os.readlink(path)}"
    if not stat.S_ISREG(mode):
        return f"mode {mode:o}"
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith("/packed-refs"):  # git writes it when it deletes a branch
        return NO_NAMES + "".join(line for line in data.decode().splitlines() if not line.startswith("#"))
    return repr(data)


# -- where the work is ---------------------------------------------------------------------------------------


class Objects:
    """The objects and branches of a repository, read past its configuration, replacements and alternates."""

    def __init__(self, common: Path, scratch: Path) -> None:
        self._common = common
        self._probe = scratch / f"probe-{common.parent.name}"
        with contextlib.suppress(OSError):
            (common / "objects" / "info" / "alternates").unlink()

    def branch_problem(self, branch: str, work: dict[bytes, bytes]) -> str | None:
        """Return why the branch does not keep the work, or None if it does."""
        tip = self._tip(branch)
        if tip is None:
            return f"there is no branch {branch}"
        if not self._probe.exists():
            user_git(self._common.parent, "init", "-q", "--bare", str(self._probe))
        if self._run("rev-list", "--objects", "--quiet", tip).returncode != 0:
            return f"the branch {branch} is not whole"
        names = self._run("ls-tree", "-r", "-z", "--name-only", tip).stdout.split(b"\0")
        missing = [path for path, data in work.items() if self._blob(tip, path) != data]
        if missing:
            return f"the branch {branch} does not have {missing}; it has {names}"
        foreign = [name for name in names if name.startswith((b"mine", b"b.txt", b"committed", b"dotfile"))]
        lost = {b"kept.txt", b"src/a.txt"} - set(names) if b"src" not in names else ()
        return f"the branch {branch} has {foreign} of others, and lacks {lost}" if foreign or lost else None

    def _blob(self, tip: str, path: bytes) -> bytes | None:
        found = self._run("cat-file", "blob", os.fsencode(f"{tip}:") + path)
        return found.stdout if found.returncode == 0 else None

    def _run(self, *arguments: str | bytes) -> "subprocess.CompletedProcess[bytes]":
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self._probe), "GIT_NO_REPLACE_OBJECTS": "1"}
        env |= {"GIT_OBJECT_DIRECTORY": str(self._common / "objects"), "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/"}
        return subprocess.run(["git", *arguments], cwd="/", env=env, capture_output=True, check=False)

    def _tip(self, branch: str) -> str | None:
        name = f"refs/heads/{branch}"
        for _ in range(5):
            with contextlib.suppress(OSError):
                found = (self._common / name).read_text().strip()
                if not found.startswith("ref: "):
                    return found
                name = found.removeprefix("ref: ")
                continue
            with contextlib.suppress(OSError):
                for line in (self._common / "packed-refs").read_text().splitlines():
                    if line.endswith(f" {name}"):
                        return line.partition(" ")[0]
            return None
        return None


def is_on_disk(agent: Agent) -> bool:
    """Return whether all of the work still lies where the agent left it."""
    return all(_bytes_of(os.path.join(os.fsencode(agent.at), path)) == data for path, data in agent.work.items())


def _bytes_of(path: bytes) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


# -- bounds ---------------------------------------------------------------------------------------------------


def run_bounded(work: Callable[[], object], root: Path) -> BaseException | None:
    """Run the work. Return what it raised. A hanging one is set free, and raises `TimeoutError` here."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        if wait([future], PATIENCE_SECONDS).done:
            return future.exception()
        while not wait([future], 0.5).done:
            _open_pipes(root)
    return TimeoutError()


def raised_by(works: Iterable[Callable[[], object]]) -> list[BaseException]:
    """Do all of them. Return what they raised."""
    with ThreadPoolExecutor(1) as pool:
        raised = [pool.submit(work).exception() for work in works]
    return [error for error in raised if error is not None]


def _open_pipes(root: Path) -> None:
    """Let everybody go on who waits for the other end of a pipe."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if stat.S_ISFIFO(os.lstat(path).st_mode):
                    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
