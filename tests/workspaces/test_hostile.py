"""Whatever an agent did inside of its workspace: no work is lost, nobody else's is touched, and no code of it runs.

Every form of `hostile_forms.py` meets every operation, locally and on a host.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.workspaces.hostile_forms import FORMS, Form
from tests.workspaces.hostile_world import (
    SECRET,
    SECRETS,
    WORK,
    Agent,
    Machine,
    Objects,
    build,
    copy_machine,
    delete,
    fingerprint,
    is_on_disk,
    prepare_here,
    prepare_on_host,
    raised_by,
    run_bounded,
    user_git,
)

from paceline.engine.retention import StoredWorkspace, remove_workspaces, unneeded_workspaces
from paceline.errors import PacelineError, WorkspaceError
from paceline.hosts.jobs import read_patch, remove_all
from paceline.store import Campaign, SqliteStore
from paceline.workspaces import (
    check_nothing_is_lost,
    commit_all,
    commit_and_remove,
    diff,
    prepare,
    remove,
    write_patch,
)
from paceline.workspaces.changes import take_bundle, write_bundle
from paceline.workspaces.merges import FinishedWork, conflict_report, merge_works, undo_merges


class Refused(Exception):
    """The operation said in its answer, not with an error, why it did nothing."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `keeps`: where the work must be after it said that all went well.

    `only`: how the names of the forms begin that matter to it.
    """

    run: Callable[[Machine], None]
    keeps: str = "branch"
    is_on_host: bool = False
    only: tuple[str, ...] = ("",)


OF_PATHS: Final = ("untouched", "git_file", "folder", "parent", "entr", "record", "nested", "head", "links", "current")
OF_REPOSITORY: Final = (
    "untouched",
    "config",
    "hooks",
    "attributes",
    "excludes",
    "commit",
    "objects",
    "locks",
    "branch",
)


def look(machine: Machine) -> None:
    each_of(lambda: shows(b"".join(diff(machine.place))), lambda: deliver_patch(machine))


def deliver_patch(machine: Machine) -> None:
    write_patch(machine.place, machine.root / "a.patch")
    shows_file(machine)


def shows_file(machine: Machine) -> None:
    file = machine.root / "a.patch"
    if file.exists():
        patch = file.read_bytes()
        file.unlink()
        shows(patch)


def shows(patch: bytes) -> None:
    assert WORK.strip() in patch, f"the patch lacks the work: {patch!r}"


def each_of(*works: Callable[[], object]) -> None:
    """Do all of them. Raise what the first of them raised that failed, but before that what is no error of ours."""
    failures = sorted(raised_by(works), key=lambda error: isinstance(error, PacelineError | Refused))
    if failures:
        raise failures[0]


def collect(machine: Machine) -> None:
    each_of(
        lambda: check_nothing_is_lost(machine.place),
        lambda: refuse_kept([StoredWorkspace(unit="docs/a", place=machine.place)], machine),
    )


def collect_abandoned(machine: Machine) -> None:
    """As if the units had been deleted: the folders in the home and their repository are all that is known."""
    store = SqliteStore.in_memory()
    store.add_campaign(Campaign(name="docs", command=("true",), workspace=machine.settings), [], update=False, now=0.0)
    found = unneeded_workspaces(store, machine.home)
    refuse_kept(found, machine)
    if machine.place.path not in [each.place.path for each in found]:
        raise Refused(f"{machine.place.path} was not found")


def refuse_kept(found: list[StoredWorkspace], machine: Machine) -> None:
    kept = remove_workspaces(found, force=False).kept
    refuse(each.reason for each in kept if each.path == machine.place.path)


def refuse(reasons: Iterable[str]) -> None:
    for reason in reasons:
        raise Refused(reason)


def retry(machine: Machine) -> None:
    """As the next attempt begins, and ends."""
    prepare(machine.place, machine.settings)
    commit_all(machine.place, "docs: a")


def begin(machine: Machine) -> None:
    """As the next unit of the campaign begins."""
    prepare(machine.later, machine.settings)
    check_begun(machine)


def begin_on_host(machine: Machine) -> None:
    on_host(machine, prepare, machine.later, machine.settings)
    check_begun(machine)


def check_begun(machine: Machine) -> None:
    found = {name: Path(machine.later.path, name).read_text() for name in ("kept.txt", "src/a.txt")}
    assert found == {"kept.txt": "kept\n", "src/a.txt": "one\ntwo\nthree\n"}, f"the next unit begins with {found}"


def apply(machine: Machine) -> None:
    """Merge the work into what the user has checked out, and into a clone that got it as a host sends it."""
    tip = commit_all(machine.place, "docs: a").commit
    assert tip is not None, "the commit says that there is no work"
    top, base, file = str(machine.project), machine.place.base or "", machine.root / "a.bundle"
    write_bundle(top, {f"refs/heads/{machine.branch}": tip}, [base], file)
    take_bundle(str(machine.root / "receiver"), file, machine.branch, tip)
    file.unlink()
    work = FinishedWork(unit="docs/a", repository=top, base=base, commit=tip)
    conflict_report([work])
    result = merge_works(top, [work])
    if not result.merged and not result.contained:
        raise Refused(f"{top}: {result.conflicts}")


def on_host(machine: Machine, work: Callable[..., object], *arguments: object) -> Any:
    return asyncio.run(machine.two_machines().job(work, *arguments))


def commit_then_remove_on_host(machine: Machine) -> None:
    on_host(machine, commit_all, machine.place, "docs: a")
    on_host(machine, commit_and_remove, machine.place, None)


def look_on_host(machine: Machine) -> None:
    each_of(
        lambda: shows(on_host(machine, read_patch, machine.place, 1 << 20).data),
        lambda: on_host(machine, write_patch, machine.place, str(machine.root / "a.patch")),
        lambda: shows_file(machine),
    )


def retry_on_host(machine: Machine) -> None:
    on_host(machine, prepare, machine.place, machine.settings)
    on_host(machine, commit_all, machine.place, "docs: a")


OPERATIONS: Final = {
    "commit_and_remove": Operation(run=lambda machine: commit_and_remove(machine.place, "docs: a")),
    "look": Operation(run=look, keeps="folder"),
    "force": Operation(run=lambda machine: remove(machine.place, force=True), keeps="nothing", only=OF_PATHS),
    "gc": Operation(run=collect),
    "gc_abandoned": Operation(run=collect_abandoned, only=OF_PATHS),
    "begin": Operation(run=begin, keeps="folder", only=OF_REPOSITORY),
    "retry": Operation(run=retry),
    "apply": Operation(run=apply, keeps="main"),
    "host_commit_then_remove": Operation(run=commit_then_remove_on_host, is_on_host=True),
    "host_look": Operation(run=look_on_host, keeps="folder", is_on_host=True, only=(*OF_PATHS, *OF_REPOSITORY)),
    "host_gc": Operation(
        run=lambda machine: refuse(on_host(machine, remove_all, (machine.place,), False).values()),
        keeps="mirror",
        is_on_host=True,
    ),
    "host_begin": Operation(run=begin_on_host, keeps="folder", is_on_host=True, only=OF_REPOSITORY),
    "host_retry": Operation(run=retry_on_host, is_on_host=True, only=OF_PATHS),
}


class Frozen(msgspec.Struct, frozen=True):
    """The machine as it was made, with a copy of its files."""

    machine: Machine
    files: Path


@pytest.fixture(scope="session")
def frozen_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Frozen]]:
    """Two machines: one with the workspaces in the home, and one with those of a worker (`True`)."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for is_on_host in (False, True):
            folder = tmp_path_factory.mktemp("hostile")
            use_home(patch, folder / "machine")
            machine = build(folder / "machine")
            machine = asyncio.run(prepare_on_host(machine)) if is_on_host else prepare_here(machine)
            (folder / "machine").rename(folder / "frozen")
            found[is_on_host] = Frozen(machine, folder / "frozen")
    yield found
    for each in found.values():
        delete(each.files.parent)


def use_home(patch: pytest.MonkeyPatch, root: Path) -> None:
    patch.setenv("HOME", str(root / "user"))
    patch.setenv("XDG_CONFIG_HOME", str(root / "user"))
    patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    patch.setattr(tempfile, "tempdir", str(root.parent))


def cases() -> Iterator[object]:
    for name, form in FORMS.items():
        for operation, does in OPERATIONS.items():
            if not (does.is_on_host and form.is_local) and name.startswith(does.only):
                yield pytest.param(name, operation, id=f"{name}-{operation}")


@pytest.mark.parametrize(("form", "operation"), [*cases()])
def test_no_work_is_lost_nothing_of_others_is_touched_and_no_code_runs(
    frozen_machines: dict[bool, Frozen], monkeypatch: pytest.MonkeyPatch, form: str, operation: str
) -> None:
    does = OPERATIONS[operation]
    frozen = frozen_machines[does.is_on_host]
    machine = frozen.machine
    monkeypatch.chdir(frozen.files)
    use_home(monkeypatch, machine.root)
    copy_machine(frozen.files, machine.root)
    agent = Agent(machine)
    FORMS[form].act(agent)
    agent.marker.unlink(missing_ok=True)
    for secret in SECRETS:
        monkeypatch.setenv(secret, SECRET)

    before = fingerprint(machine, agent)
    raised = run_bounded(lambda: does.run(machine), machine.root)
    after = fingerprint(machine, agent)

    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    may_move = raised is None and does.keeps == "main"
    found = [
        *code_that_ran(agent),
        *mistakes_in_answer(machine, FORMS[form], operation, raised),
        *loss(machine, agent, does.keeps, raised, is_apart=FORMS[form].is_apart),
        *(f"changed: {path}" for path in changed if not (may_move and is_of_main(machine, path))),
    ]
    delete(machine.root)
    found += (f"left behind: {each}" for each in frozen.files.parent.iterdir() if each != frozen.files)
    assert not found, "\n".join(found)


def code_that_ran(agent: Agent) -> Iterator[str]:
    """Yield what ran, and which programs, also the user's own, saw a secret of the engine."""
    if agent.marker.exists():
        yield f"code of the agent ran: {agent.marker.read_text().partition(chr(10))[0]}"
    for marker in (agent.marker, agent.own_filter_marker):
        if marker.exists() and SECRET in marker.read_text():
            yield f"{marker.name} saw the secrets of the engine"


def mistakes_in_answer(machine: Machine, form: Form, operation: str, raised: BaseException | None) -> Iterator[str]:
    if raised is None:
        if form.holds and any(each in operation for each in ("commit", "apply")):
            yield "the unit was not held"
        return
    text = str(raised)
    if isinstance(raised, TimeoutError):
        yield "it hung"
    elif isinstance(raised, AssertionError):
        yield from () if form.is_apart else (text.partition("\n")[0],)
    elif not isinstance(raised, PacelineError | Refused):
        yield f"no error of ours: {raised!r}"
    elif not (str(machine.root) in text or machine.branch in text) or re.search(r"\w+Error: ", text):
        yield f"it does not say where and what: {text}"
    elif isinstance(raised, WorkspaceError) and raised.is_campaigns and not form.is_for_all:
        yield f"the whole campaign is blamed: {text}"


def loss(machine: Machine, agent: Agent, keeps: str, raised: BaseException | None, *, is_apart: bool) -> Iterator[str]:
    """Yield why the work is not where the answer says that it is."""
    if keeps == "nothing":
        return
    is_there = is_on_disk(agent)
    if keeps == "folder" or raised is not None or is_apart:
        keeps, is_enough = "branch", is_there
    else:
        is_enough = False
    commons = [machine.project / ".git"]
    if keeps == "main":
        commons.append(machine.root / "receiver" / ".git")
    elif keeps == "mirror":
        commons = [agent.common]
    for common in () if is_enough else commons:
        branch = "main" if keeps == "main" and common == commons[0] else machine.branch
        problem = Objects(common, machine.root).branch_problem(branch, agent.kept)
        if problem is not None:
            yield f"{common}: {problem}; the folder {'has' if is_there else 'does not have'} the work"


def is_of_main(machine: Machine, path: str) -> bool:
    """Return whether a merge into the checked-out branch may change the file."""
    name = os.path.relpath(path, machine.project)
    if name.startswith(".git/"):
        return name in (".git/index", ".git/ORIG_HEAD", ".git/refs/heads/main") or name.startswith(
            (".git/logs/", ".git/sharedindex")
        )
    return not name.startswith(("..", ".paceline", "mine"))


LATE: Final = ("untouched", "config", "hooks", "attributes", "commit_replaced", "grafts_so")
"""Forms of another unit that matter when work is merged which was committed before."""


@pytest.mark.parametrize("form", [each for each in FORMS if each.startswith(LATE)])
def test_committed_work_is_merged_and_taken_back_as_it_is_whatever_another_agent_did_since(
    frozen_machines: dict[bool, Frozen], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    frozen = frozen_machines[False]
    machine = frozen.machine
    use_home(monkeypatch, machine.root)
    copy_machine(frozen.files, machine.root)
    agent = Agent(machine)
    agent.write("src/a.txt", "ONE\ntwo\nthree\n")
    tip = commit_all(machine.place, "docs: a").commit
    (machine.project / "src" / "a.txt").write_text("one\ntwo\nTHREE\n")
    user_git(machine.project, "commit", "-qam", "the user's")
    agent.write("work.txt", "more\n")
    FORMS[form].act(agent)
    agent.marker.unlink(missing_ok=True)
    for secret in SECRETS:
        monkeypatch.setenv(secret, SECRET)
    merged: list[str] = []

    def merge() -> None:
        work = FinishedWork(unit="docs/a", repository=top, base=machine.place.base or "", commit=tip or "")
        conflict_report([work])
        merge_works(top, [work])
        merged.append((machine.project / "src" / "a.txt").read_text())
        undo_merges(top)
        merged.append((machine.project / "src" / "a.txt").read_text())

    top, before = str(machine.project), fingerprint(machine, agent)
    raised = run_bounded(merge, machine.root)
    after = fingerprint(machine, agent)

    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    found = [f"changed: {path}" for path in changed if not is_of_main(machine, path)]
    found += [*code_that_ran(agent), *mistakes_in_answer(machine, FORMS[form], "", raised)]
    if raised is None and merged != ["ONE\ntwo\nTHREE\n", "one\ntwo\nTHREE\n"]:
        found.append(f"merged, and taken back: {merged}")
    delete(machine.root)
    assert not found, "\n".join(found)
