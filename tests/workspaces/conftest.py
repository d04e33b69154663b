"""Real repositories of git, and workspaces made from them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.store.interface import WorkspaceSettings
from paceline.store.unit_result import UnitResult
from paceline.workspaces import WorkspaceLocation, location_of, read_settings, resolve_base

WHO = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, and no configuration of the user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder / "a.txt", "one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


class TestRepository:
    """A repository with one commit: `kept.txt`, `src/a.txt` and a `.gitignore` for `.env` and `cache/`."""

    __test__ = False

    def __init__(self, top: Path, home: Path) -> None:
        self.top = top
        self.home = home

    def git(self, *arguments: str, cwd: Path | str | None = None) -> str:
        """Run git as a user would, and return what it printed."""
        return git(cwd or self.top, *arguments)

    def write(self, path: str, text: str) -> None:
        write(self.top / path, text)

    def commit(self, message: str = "a change") -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        return self.git("rev-parse", "HEAD")

    def settings(self, **changes: object) -> WorkspaceSettings:
        top, commit = resolve_base(str(self.top), "HEAD")
        return WorkspaceSettings(bases={top: commit}, git={top: read_settings(top)}, **changes)  # type: ignore[arg-type]

    def place(
        self, unit: str = "a", settings: WorkspaceSettings | None = None, cwd: str = "", **stored: str
    ) -> WorkspaceLocation:
        folder = str(self.top / cwd) if cwd else str(self.top)
        return location_of(settings or self.settings(), "docs", unit, folder, self.home, UnitResult(**stored))  # type: ignore[arg-type]


def git(cwd: Path | str, *arguments: str) -> str:
    """Run git as a user would, and return what it printed."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
    command = ["git", *WHO, "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout.strip()


def write(file: Path | str, text: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text, "utf-8")


def snapshot(folder: Path | str) -> dict[str, str]:
    """Return all files below the folder with their contents, or the targets of links; git's own are left out."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if ".git" in path.relative_to(folder).parts[:1]:
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_text("utf-8")
    return found


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run git without the configuration of whoever runs the tests."""
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def make_repository(tmp_path: Path) -> Callable[[str], TestRepository]:
    def make(name: str) -> TestRepository:
        top = tmp_path / name
        top.mkdir()
        repository = TestRepository(top, tmp_path / "homes" / name)
        repository.git("init", "-q")
        repository.write("kept.txt", "kept\n")
        repository.write("src/a.txt", "one\ntwo\nthree\n")
        repository.write(".gitignore", ".env\ncache/\n")
        repository.commit("first")
        return repository

    return make


@pytest.fixture
def repository(make_repository: Callable[[str], TestRepository]) -> TestRepository:
    return make_repository("project")
