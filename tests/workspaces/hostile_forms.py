"""What an agent did inside of its workspace before it ended: each form by its name.

A form begins with uncommitted work in `work.txt`. It says where the work is afterwards, unless it stays there.
"""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from tests.workspaces.hostile_world import BRANCH, WORK, Agent

Act = Callable[[Agent], None]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One form. `holds`: nothing of it may be committed; the unit is held, with the reason.

    `is_for_all`: every unit of the campaign meets it, so the campaign may pause. `is_apart`: the work lies where
    nothing is committed from, and must only stay there.
    """

    act: Act
    holds: bool = False
    is_for_all: bool = False
    is_local: bool = False
    is_apart: bool = False


FORMS: Final[dict[str, Form]] = {}
HOOKS: Final = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "prepare-commit-msg",
    "reference-transaction",
    "update",
]


def form(**fields: bool) -> Callable[[Act], Act]:
    """Enter the function into the table."""

    def enter(act: Act) -> Act:
        FORMS[act.__name__] = Form(act=act, **fields)
        return act

    return enter


# -- nothing happened -----------------------------------------------------------------------------------------


@form()
def untouched(_: Agent) -> None:
    """The work of every ordinary unit."""


@form()
def filter_of_the_user(agent: Agent) -> None:
    """A file that the user's own filter is for. It runs, as for the user, but without the secrets of the engine."""
    agent.write("notes.own", "abc\n")
    agent.work[b"notes.own"] = b"abc\n"
    agent.filtered[b"notes.own"] = b"bcd\n"


# -- the file `.git` ------------------------------------------------------------------------------------------


@form(holds=True)
def git_file_deleted(agent: Agent) -> None:
    (agent.path / ".git").unlink()


@form(holds=True)
def git_file_names_an_evil_folder(agent: Agent) -> None:
    agent.git("init", "-q", "--bare", "evil")
    agent.evil_config(str(agent.path / "evil" / "config"))
    agent.write(".gitattributes", "* filter=x diff=x merge=x\n")
    agent.write(".git", "gitdir: ./evil\n")


@form(holds=True)
def git_file_is_an_own_repository(agent: Agent) -> None:
    (agent.path / ".git").unlink()
    agent.git("init", "-q")
    agent.evil_config(str(agent.path / ".git" / "config"))
    agent.write(".gitattributes", "* filter=x diff=x merge=x\n")


@form(holds=True)
def git_file_is_that_of_a_clone(agent: Agent) -> None:
    agent.git("clone", "-q", str(agent.top), "T")
    (agent.path / ".git").unlink()
    (agent.path / "T" / ".git").rename(agent.path / ".git")
    shutil.rmtree(agent.path / "T")


@form(holds=True)
def git_file_is_that_of_a_clone_with_the_work_committed(agent: Agent) -> None:
    git_file_is_that_of_a_clone(agent)
    agent.git("checkout", "-qb", BRANCH)
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")


@form(holds=True)
def git_file_copied_from_the_neighbour(agent: Agent) -> None:
    shutil.copy(agent.neighbour / ".git", agent.path / ".git")


@form(holds=True)
def git_file_is_a_link_to_the_neighbours(agent: Agent) -> None:
    (agent.path / ".git").unlink()
    (agent.path / ".git").symlink_to(agent.neighbour / ".git")


@form(holds=True)
def git_file_names_the_users_repository(agent: Agent) -> None:
    agent.write(".git", f"gitdir: {agent.common}\n")


@form(holds=True)
def git_file_is_a_pipe(agent: Agent) -> None:
    (agent.path / ".git").unlink()
    os.mkfifo(agent.path / ".git")


@form(holds=True)
def git_file_is_garbage(agent: Agent) -> None:
    (agent.path / ".git").write_bytes(bytes(range(256)) * 40)


@form(holds=True)
def git_file_is_an_empty_folder(agent: Agent) -> None:
    (agent.path / ".git").unlink()
    (agent.path / ".git").mkdir()


@form(holds=True)
def git_file_is_that_of_a_worktree_of_a_clone(agent: Agent) -> None:
    """A repository of the agent that knows the folder, with its branch and all of the work."""
    clone = agent.elsewhere / "clone"
    agent.git("clone", "-q", str(agent.top), str(clone))
    aside = agent.elsewhere / "aside"
    agent.git("worktree", "add", "-qB", BRANCH, str(aside), agent.machine.place.base or "", cwd=clone)
    shutil.copy(agent.path / "work.txt", aside)
    agent.git("add", "-A", cwd=aside)
    agent.git("commit", "-qm", "of the agent", cwd=aside)
    agent.git("update-ref", "refs/heads/HEAD", "HEAD", cwd=aside)  # the branch of a workspace without a record
    (agent.path / ".git").unlink()
    (aside / ".git").rename(agent.path / ".git")
    agent.git("worktree", "repair", str(agent.path), cwd=clone)


@form()
def git_file_is_relative(agent: Agent) -> None:
    agent.write(".git", f"gitdir: {os.path.relpath(agent.entry, agent.path)}\n")


@form(holds=True)
def git_file_leads_through_a_link_to_its_entry(agent: Agent) -> None:
    """A link that can be turned between two looks at it."""
    (agent.elsewhere / "link").symlink_to(agent.entry)
    agent.write(".git", f"gitdir: {agent.elsewhere}/link\n")


# -- the folder -----------------------------------------------------------------------------------------------


@form(holds=True)
def folder_is_a_link_to_the_project(agent: Agent) -> None:
    agent.move_away()
    agent.path.symlink_to(agent.machine.project)


@form(holds=True)
def folder_is_a_link_to_itself_elsewhere(agent: Agent) -> None:
    agent.path.symlink_to(agent.move_away())


@form(holds=True)
def parent_is_a_link(agent: Agent) -> None:
    parent = agent.path.parent
    parent.rename(agent.elsewhere / "docs")
    parent.symlink_to(agent.elsewhere / "docs")


@form(holds=True)
def parent_is_a_link_to_a_folder_of_the_user(agent: Agent) -> None:
    """Where the user has a folder of the same name."""
    parent = agent.path.parent
    parent.rename(agent.elsewhere / "docs")
    (agent.machine.root / "user" / "a").mkdir()
    (agent.machine.root / "user" / "a" / "mine.txt").write_text("the user's own\n")
    parent.symlink_to(agent.machine.root / "user")
    agent.at = agent.elsewhere / "docs" / "a"


@form(holds=True)
def folder_moved_away_and_a_fresh_one_in_place(agent: Agent) -> None:
    agent.move_away()
    agent.write("fresh.txt", "fresh\n")


@form(holds=True)
def folder_moved_away_and_a_clone_in_place(agent: Agent) -> None:
    agent.move_away()
    agent.git("clone", "-q", str(agent.top), str(agent.path), cwd=agent.elsewhere)


@form(holds=True)
def folder_swapped_with_the_neighbour(agent: Agent) -> None:
    agent.path.rename(agent.elsewhere / "x")
    agent.neighbour.rename(agent.path)
    (agent.elsewhere / "x").rename(agent.neighbour)
    agent.at = agent.neighbour


@form(is_apart=True)
def folder_moved_away(agent: Agent) -> None:
    agent.move_away()


@form(holds=True)
def folder_is_a_file(agent: Agent) -> None:
    agent.move_away()
    agent.path.write_text("no folder\n")


@form(is_local=True)
def current_folder_deleted(agent: Agent) -> None:
    """The engine was started in a folder that is gone."""
    (agent.elsewhere / "cwd").mkdir()
    os.chdir(agent.elsewhere / "cwd")
    (agent.elsewhere / "cwd").rmdir()


# -- repositories inside --------------------------------------------------------------------------------------


@form()
def nested_repository_with_a_commit(agent: Agent) -> None:
    nested(agent, "app", is_committed=True)


@form()
def nested_repository_without_a_commit(agent: Agent) -> None:
    nested(agent, "app", is_committed=False)


@form()
def nested_repository_that_the_agent_added_and_committed(agent: Agent) -> None:
    nested(agent, "app", is_committed=True)
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")


@form()
def nested_repository_with_changes_beyond_its_commit(agent: Agent) -> None:
    nested(agent, "app", is_committed=True)
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    agent.write("app/later.txt")
    agent.work[b"app/later.txt"] = WORK


@form(is_apart=True)
def nested_repository_in_an_ignored_folder(agent: Agent) -> None:
    nested(agent, "cache/app", is_committed=True)


@form()
def nested_repository_that_is_evil(agent: Agent) -> None:
    nested(agent, "app", is_committed=True)
    agent.evil_config(str(agent.path / "app" / ".git" / "config"))
    agent.write("app/.gitattributes", "* filter=x diff=x\n")
    plant_hooks(agent, agent.path / "app" / ".git" / "hooks")
    (agent.path / "app" / "work.txt").touch()


@form()
def nested_repository_that_is_evil_and_known(agent: Agent) -> None:
    """git looks into a nested repository for changes only if it is in the index."""
    nested(agent, "app", is_committed=True)
    agent.git("add", "app")
    agent.evil_config(str(agent.path / "app" / ".git" / "config"))
    agent.write("app/.gitattributes", "* filter=x diff=x\n")
    agent.write("app/work.txt", "changed by the agent\n")
    agent.work[b"app/work.txt"] = b"changed by the agent\n"


@form()
def nested_worktree_of_the_same_repository(agent: Agent) -> None:
    agent.git("worktree", "add", "-q", "-b", "side", "side")
    agent.write("side/side.txt")
    agent.work[b"side/side.txt"] = WORK


@form()
def nested_git_file_that_names_the_project(agent: Agent) -> None:
    agent.write("app/work.txt")
    agent.write("app/.git", f"gitdir: {agent.common}\n")
    agent.work[b"app/work.txt"] = WORK


@form()
def nested_bare_repository(agent: Agent) -> None:
    agent.git("init", "-q", "--bare", "store.git")
    agent.evil_config(str(agent.path / "store.git" / "config"))
    agent.git("push", "-q", "store.git", "HEAD:refs/heads/main", code=None)


@form()
def submodule_added(agent: Agent) -> None:
    user_repository = agent.elsewhere / "library"
    user_repository.mkdir()
    agent.git("init", "-q", cwd=user_repository)
    (user_repository / "l.txt").write_text("l\n")
    agent.git("add", "-A", cwd=user_repository)
    agent.git("commit", "-qm", "library", cwd=user_repository)
    agent.git("submodule", "add", "-q", str(user_repository), "lib")
    agent.write("lib/work.txt")
    agent.git("add", "-A", cwd=agent.path / "lib")
    agent.git("commit", "-qm", "of the agent", cwd=agent.path / "lib")
    agent.work[b"lib/work.txt"] = WORK


@form()
def submodule_that_is_evil(agent: Agent) -> None:
    nested(agent, "app", is_committed=True)
    agent.git("add", "app")
    agent.write(
        ".gitmodules",
        f'[submodule "app"]\n\tpath = app\n\turl = ext::{agent.canary}\n\tupdate = !{agent.canary}\n\tignore = all\n',
    )
    agent.config("submodule.app.update", f"!{agent.canary}", "submodule.app.url", f"ext::{agent.canary}")
    agent.config("submodule.app.active", "true", "protocol.ext.allow", "always", "submodule.recurse", "true")
    agent.config("submodule.app.ignore", "all")
    agent.evil_config(str(agent.path / "app" / ".git" / "config"))


def nested(agent: Agent, folder: str, *, is_committed: bool) -> None:
    agent.write(f"{folder}/work.txt")
    agent.git("init", "-q", folder)
    if is_committed:
        agent.git("add", "-A", cwd=agent.path / folder)
        agent.git("commit", "-qm", "of the agent", cwd=agent.path / folder)
    agent.work[os.fsencode(folder) + b"/work.txt"] = WORK


# -- the configuration ----------------------------------------------------------------------------------------


@form(is_for_all=True)
def config_with_commands(agent: Agent) -> None:
    agent.evil_config()


@form(holds=True)
def config_with_a_filter(agent: Agent) -> None:
    agent.config("filter.x.clean", agent.canary, "filter.x.smudge", agent.canary, "filter.x.required", "true")
    agent.write(".gitattributes", "*.txt filter=x\n")


@form(holds=True)
def config_with_a_filter_process(agent: Agent) -> None:
    agent.config("filter.x.process", agent.canary)
    agent.write(".gitattributes", "*.txt filter=x\n")


@form()
def config_with_another_filter_of_the_same_name(agent: Agent) -> None:
    """The user's own filter runs, as it was."""
    agent.config("filter.own.clean", agent.canary)
    filter_of_the_user(agent)


@form()
def config_with_diff_and_merge_drivers(agent: Agent) -> None:
    agent.config("diff.x.textconv", agent.canary, "diff.x.command", agent.canary, "diff.external", agent.canary)
    agent.config("merge.x.driver", f"{agent.canary} %A", "merge.default", "x", "diff.x.cachetextconv", "true")
    agent.write(".gitattributes", "*.txt diff=x merge=x\n")
    agent.write("src/a.txt", "one\ntwo\nagent\n")


@form()
def config_with_fsmonitor(agent: Agent) -> None:
    agent.config("core.fsmonitor", agent.canary)
    agent.git("update-index", "--fsmonitor", code=None)


@form()
def config_with_a_path_of_hooks(agent: Agent) -> None:
    plant_hooks(agent, agent.elsewhere / "hooks")
    agent.config("core.hooksPath", str(agent.elsewhere / "hooks"))


@form()
def hooks_in_the_common_folder(agent: Agent) -> None:
    plant_hooks(agent, agent.common / "hooks")


@form()
def config_with_another_work_tree(agent: Agent) -> None:
    agent.config("core.worktree", str(agent.machine.outer))


@form(is_for_all=True)
def config_of_a_bare_repository(agent: Agent) -> None:
    agent.config("core.bare", "true")


@form()
def config_that_includes_a_file(agent: Agent) -> None:
    agent.evil_config(str(agent.elsewhere / "included"))
    agent.config("include.path", str(agent.elsewhere / "included"))
    agent.config("includeIf.onbranch:**.path", str(agent.elsewhere / "included"))
    agent.write(".gitattributes", "*.evil filter=x diff=x merge=x\n")


@form(is_for_all=True)
def config_that_includes_a_pipe(agent: Agent) -> None:
    os.mkfifo(agent.elsewhere / "pipe")
    with open(agent.common / "config", "a", encoding="utf-8") as file:
        file.write(f"[include]\n\tpath = {agent.elsewhere}/pipe\n")


@form(holds=True)
def config_of_the_worktree_alone(agent: Agent) -> None:
    agent.config("extensions.worktreeConfig", "true")
    agent.evil_config(str(agent.entry / "config.worktree"))
    agent.config("core.worktree", str(agent.neighbour), file=str(agent.entry / "config.worktree"))
    agent.write(".gitattributes", "*.txt filter=x diff=x merge=x\n")


@form(holds=True)
def config_of_the_user(agent: Agent) -> None:
    agent.evil_config(str(agent.machine.root / "user" / ".gitconfig"))
    agent.write(".gitattributes", "*.txt filter=x diff=x merge=x\n")


@form()
def attributes_of_the_repository(agent: Agent) -> None:
    agent.evil_config()
    (agent.common / "info").mkdir(exist_ok=True)
    (agent.common / "info" / "attributes").write_text("* filter=x diff=x merge=x\n")


@form(is_for_all=True)
def config_is_garbage(agent: Agent) -> None:
    (agent.common / "config").write_text("[core\n\tgarbage\n")


@form(is_for_all=True)
def config_of_the_future(agent: Agent) -> None:
    agent.config("core.repositoryformatversion", "99")


@form(is_for_all=True)
def config_is_a_pipe(agent: Agent) -> None:
    (agent.common / "config").unlink()
    os.mkfifo(agent.common / "config")


@form()
def config_that_hides_untracked_files(agent: Agent) -> None:
    agent.config("status.showUntrackedFiles", "no")


@form()
def config_that_hides_changes(agent: Agent) -> None:
    """A change of the same size and time."""
    file = agent.path / "src" / "a.txt"
    agent.config("core.trustctime", "false", "core.checkStat", "minimal", "core.ignoreStat", "true")
    agent.git("update-index", "--refresh", code=None)
    before = file.stat()
    file.write_text("one\nTWO\nthree\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    agent.work[b"src/a.txt"] = b"one\nTWO\nthree\n"


@form()
def excludes_of_the_repository(agent: Agent) -> None:
    (agent.common / "info").mkdir(exist_ok=True)
    (agent.common / "info" / "exclude").write_text("*\n")


@form()
def config_with_excludes(agent: Agent) -> None:
    (agent.elsewhere / "excludes").write_text("*\n")
    agent.config("core.excludesFile", str(agent.elsewhere / "excludes"))


@form()
def config_of_a_sparse_checkout(agent: Agent) -> None:
    agent.git("sparse-checkout", "set", "src")
    agent.write("docs/new.txt")
    agent.write("kept.txt", "changed by the agent\n")
    agent.work |= {b"docs/new.txt": WORK, b"kept.txt": b"changed by the agent\n"}


@form()
def config_with_odd_values(agent: Agent) -> None:
    """None of them is wrong, and each would change what git prints or writes."""
    agent.config("core.abbrev", "4", "core.symlinks", "false", "core.fileMode", "false", "core.ignoreCase", "true")
    agent.config("diff.context", "0", "diff.relative", "true", "diff.submodule", "log", "diff.renames", "copies")
    agent.config("i18n.commitEncoding", "UTF-16", "i18n.logOutputEncoding", "UTF-16", "core.preferSymlinkRefs", "true")
    agent.config("commit.template", "/nowhere", "commit.verbose", "2", "core.commentChar", "w", "color.ui", "always")
    agent.config("core.splitIndex", "true", "core.untrackedCache", "true", "core.logAllRefUpdates", "always")
    agent.config("transfer.hideRefs", "refs/heads", "core.createObject", "rename", "diff.ignoreSubmodules", "all")
    agent.config("core.bigFileThreshold", "1", "diff.wordRegex", "[", "user.useConfigOnly", "true")


@form(is_for_all=True)
def config_that_names_pipes(agent: Agent) -> None:
    os.mkfifo(agent.elsewhere / "pipe")
    for key in ("core.attributesFile", "core.excludesFile", "diff.orderFile", "commit.template", "mailmap.file"):
        agent.config(key, str(agent.elsewhere / "pipe"))


@form(is_for_all=True)
def locks_left_in_the_common_folder(agent: Agent) -> None:
    for name in ("packed-refs.lock", "config.lock", "HEAD.lock", f"refs/heads/{BRANCH}.lock", "shallow.lock"):
        (agent.common / name).touch()


def plant_hooks(agent: Agent, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOKS:
        shutil.copy(agent.canary, folder / name)


# -- the registration -----------------------------------------------------------------------------------------


@form(holds=True)
def entry_deleted(agent: Agent) -> None:
    shutil.rmtree(agent.entry)


@form(holds=True)
def entry_deleted_by_prune(agent: Agent) -> None:
    """The folder was moved away for a moment, and git forgot it."""
    agent.path.rename(agent.elsewhere / "x")
    agent.git("worktree", "prune", "--expire=now", cwd=agent.top)
    (agent.elsewhere / "x").rename(agent.path)


@form()
def entry_names_the_neighbours_folder(agent: Agent) -> None:
    (agent.entry / "gitdir").write_text(f"{agent.neighbour}/.git\n")


@form(holds=True)
def entry_names_an_evil_repository(agent: Agent) -> None:
    evil = agent.elsewhere / "evil.git"
    agent.git("clone", "-q", "--bare", str(agent.top), str(evil))
    agent.evil_config(str(evil / "config"))
    plant_hooks(agent, evil / "hooks")
    agent.write(".gitattributes", "*.txt filter=x diff=x merge=x\n")
    agent.git("branch", "-f", BRANCH, agent.machine.place.base or "", cwd=evil)
    (agent.entry / "commondir").write_text(f"{evil}\n")


@form(holds=True)
def entry_is_a_link_to_the_neighbours(agent: Agent) -> None:
    shutil.rmtree(agent.entry)
    agent.entry.symlink_to(agent.entry.with_name("b"))


@form(holds=True)
def entry_swapped_with_the_neighbours(agent: Agent) -> None:
    other = agent.entry.with_name("b")
    for file in (agent.path / ".git", agent.neighbour / ".git"):
        name = "b" if file.parent == agent.path else "a"
        file.write_text(f"gitdir: {agent.entry.with_name(name)}\n")
    (agent.entry / "gitdir").write_text(f"{agent.neighbour}/.git\n")
    (other / "gitdir").write_text(f"{agent.path}/.git\n")


@form()
def entry_locked(agent: Agent) -> None:
    (agent.entry / "locked").write_text("for ever\n")


@form()
def record_says_half_made(agent: Agent) -> None:
    """What is half-made is deleted without being asked for."""
    for record in (agent.common / "paceline" / "workspaces").glob("a-*.json"):
        record.write_text(record.read_text().replace('"phase":"made"', '"phase":"making"'))


@form()
def record_leaves_the_work_out(agent: Agent) -> None:
    """As if the work were a file that the user had included."""
    for record in (agent.common / "paceline" / "workspaces").glob("a-*.json"):
        record.write_text(record.read_text().rstrip("}").rstrip() + ',"uncommitted":["work.txt"]}')


@form()
def entry_with_links_to_files_of_the_user(agent: Agent) -> None:
    """git writes some files of an entry in place."""
    for name in ("COMMIT_EDITMSG", "ORIG_HEAD", "AUTO_MERGE", "MERGE_MSG", "FETCH_HEAD"):
        (agent.entry / name).unlink(missing_ok=True)
        (agent.entry / name).symlink_to(agent.machine.outer / "mine.txt")


@form()
def log_of_the_branch_is_a_link_to_a_file_of_the_user(agent: Agent) -> None:
    for log in (agent.common / "logs" / "refs" / "heads" / BRANCH, agent.entry / "logs" / "HEAD"):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        log.symlink_to(agent.machine.outer / "mine.txt")


@form(holds=True)
def entries_are_elsewhere(agent: Agent) -> None:
    (agent.common / "worktrees").rename(agent.elsewhere / "worktrees")
    (agent.common / "worktrees").symlink_to(agent.elsewhere / "worktrees")


@form()
def record_is_a_pipe(agent: Agent) -> None:
    for record in (agent.common / "paceline" / "workspaces").glob("a-*.json"):
        record.unlink()
        os.mkfifo(record)


@form()
def record_that_is_written_through_a_link(agent: Agent) -> None:
    for record in (agent.common / "paceline" / "workspaces").glob("a-*.json"):
        Path(f"{record}.new").symlink_to(agent.machine.outer / "mine.txt")


@form(is_local=True)
def patch_that_is_written_through_a_link(agent: Agent) -> None:
    (agent.machine.root / ".a.patch.partial").symlink_to(agent.machine.outer / "mine.txt")


# -- the index ------------------------------------------------------------------------------------------------


@form()
def index_locked(agent: Agent) -> None:
    (agent.entry / "index.lock").touch()
    (agent.entry / "HEAD.lock").touch()


@form()
def index_is_garbage(agent: Agent) -> None:
    (agent.entry / "index").write_bytes(b"garbage" * 100)


@form()
def index_deleted(agent: Agent) -> None:
    (agent.entry / "index").unlink()


@form()
def index_is_a_pipe(agent: Agent) -> None:
    (agent.entry / "index").unlink()
    os.mkfifo(agent.entry / "index")


@form()
def index_is_a_link_to_the_users(agent: Agent) -> None:
    (agent.entry / "index").unlink()
    (agent.entry / "index").symlink_to(agent.entry.with_name("b") / "index")


@form()
def index_with_skipped_files(agent: Agent) -> None:
    agent.write("src/a.txt", "changed by the agent\n")
    agent.write("kept.txt", "changed by the agent\n")
    agent.git("update-index", "--skip-worktree", "src/a.txt")
    agent.git("update-index", "--assume-unchanged", "kept.txt")
    agent.work |= dict.fromkeys((b"src/a.txt", b"kept.txt"), b"changed by the agent\n")


@form()
def index_with_files_to_be_added(agent: Agent) -> None:
    agent.git("add", "--intent-to-add", "work.txt")


@form()
def index_that_is_split(agent: Agent) -> None:
    agent.git("update-index", "--split-index")
    agent.git("add", "work.txt")


# -- HEAD and branches ----------------------------------------------------------------------------------------


@form()
def head_detached_with_commits(agent: Agent) -> None:
    agent.git("checkout", "-q", "--detach")
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")


@form()
def head_on_the_users_branch(agent: Agent) -> None:
    agent.git("symbolic-ref", "HEAD", "refs/heads/main")


@form()
def head_on_the_neighbours_branch(agent: Agent) -> None:
    agent.git("symbolic-ref", "HEAD", f"{agent.git('symbolic-ref', 'HEAD')[:-1]}b")


@form()
def head_on_a_branch_of_its_own(agent: Agent) -> None:
    agent.git("checkout", "-qb", "side")
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")


@form()
def head_is_garbage(agent: Agent) -> None:
    (agent.entry / "HEAD").write_text("garbage\n")


@form()
def head_is_a_pipe(agent: Agent) -> None:
    (agent.entry / "HEAD").unlink()
    os.mkfifo(agent.entry / "HEAD")


@form()
def head_deleted(agent: Agent) -> None:
    (agent.entry / "HEAD").unlink()


@form()
def branch_deleted(agent: Agent) -> None:
    agent.git("update-ref", "-d", f"refs/heads/{BRANCH}")


@form()
def branch_deleted_after_a_commit(agent: Agent) -> None:
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    agent.git("checkout", "-q", "--detach")
    agent.git("branch", "-qD", BRANCH)


@form()
def branch_of_an_unrelated_history(agent: Agent) -> None:
    agent.git("checkout", "-q", "--orphan", "side")
    agent.git("add", "-A")
    agent.git("commit", "-qm", "unrelated")
    agent.git("branch", "-qf", BRANCH, "HEAD")
    agent.git("checkout", "-q", BRANCH)


@form()
def branch_is_a_name_for_the_users(agent: Agent) -> None:
    """What is committed to the branch would be committed to `main`."""
    agent.git("symbolic-ref", f"refs/heads/{BRANCH}", "refs/heads/main")


@form()
def branch_is_a_name_for_the_neighbours(agent: Agent) -> None:
    agent.git("symbolic-ref", f"refs/heads/{BRANCH}", f"refs/heads/{BRANCH[:-1]}b")


@form()
def branch_is_a_link_to_the_users(agent: Agent) -> None:
    name = agent.common / "refs" / "heads" / BRANCH
    name.unlink()
    name.symlink_to(agent.common / "refs" / "heads" / "main")


@form()
def branch_is_a_folder(agent: Agent) -> None:
    agent.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    agent.git("update-ref", f"refs/heads/{BRANCH}/x", agent.machine.place.base or "")


@form()
def branch_moved_back_below_a_commit(agent: Agent) -> None:
    """The commit of the agent is then on no branch."""
    agent.git("checkout", "-q", "--detach")
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    agent.git("checkout", "-q", BRANCH)
    agent.at = agent.path
    agent.git("cherry-pick", "-n", "ORIG_HEAD", code=None)
    agent.write("work.txt")


@form()
def rebase_in_progress(agent: Agent) -> None:
    agent.write("src/a.txt", "agent\n")
    agent.git("add", "src")
    agent.git("commit", "-qm", "of the agent")
    agent.git("checkout", "-qb", "other", "HEAD~1")
    agent.write("src/a.txt", "other\n")
    agent.git("commit", "-qam", "other")
    agent.git("rebase", "-q", BRANCH, code=None)
    agent.git("checkout", "--theirs", "src/a.txt")


@form()
def merge_in_progress(agent: Agent) -> None:
    agent.write("src/a.txt", "agent\n")
    agent.git("add", "src")
    agent.git("commit", "-qm", "of the agent")
    agent.git("checkout", "-qb", "other", "HEAD~1")
    agent.write("src/a.txt", "other\n")
    agent.git("commit", "-qam", "other")
    agent.git("merge", "-q", BRANCH, code=1)


@form()
def head_is_a_link_to_the_users(agent: Agent) -> None:
    (agent.entry / "HEAD").unlink()
    (agent.entry / "HEAD").symlink_to(agent.common / "HEAD")


@form()
def head_on_a_name_of_the_worktree_alone(agent: Agent) -> None:
    agent.git("update-ref", "refs/worktree/x", "HEAD")
    agent.git("symbolic-ref", "HEAD", "refs/worktree/x")
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")


@form()
def rebase_that_would_run_commands(agent: Agent) -> None:
    """And one that stashed changes: the stash is the user's."""
    agent.git("add", "-A")
    stash = agent.git("stash", "create")
    todo = agent.entry / "rebase-merge"
    todo.mkdir()
    texts = {"git-rebase-todo": f"exec {agent.canary}\n", "head-name": f"refs/heads/{BRANCH}\n"}
    texts |= {"onto": "main\n", "orig-head": "main\n", "autostash": f"{stash}\n", "interactive": ""}
    for name, text in texts.items():
        (todo / name).write_text(text)


# -- objects --------------------------------------------------------------------------------------------------


@form()
def objects_replaced(agent: Agent) -> None:
    """git shows other bytes for the work than those in its commit, and another commit for the base."""
    (agent.elsewhere / "other").write_text("other bytes\n")
    real = agent.git("hash-object", "-w", "work.txt")
    other = agent.git("hash-object", "-w", str(agent.elsewhere / "other"))
    agent.git("replace", real, other)
    agent.git("replace", other, real, code=None)


@form()
def commit_replaced(agent: Agent) -> None:
    """The branch seems to have the work already."""
    agent.git("add", "-A")
    with_work = agent.git("commit-tree", agent.git("write-tree"), "-m", "with the work")
    agent.git("replace", agent.machine.place.base or "", with_work)


@form()
def grafts(agent: Agent) -> None:
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    (agent.common / "info").mkdir(exist_ok=True)
    (agent.common / "info" / "grafts").write_text(f"{agent.git('rev-parse', 'HEAD')}\n")


@form()
def objects_in_an_alternate_that_goes_away(agent: Agent) -> None:
    """The bytes of the work are already known, in a place that the agent may delete at any time."""
    away = agent.elsewhere / "away.git"
    agent.git("init", "-q", "--bare", str(away))
    agent.git("--git-dir", str(away), "hash-object", "-w", str(agent.path / "work.txt"))
    (agent.common / "objects" / "info").mkdir(exist_ok=True)
    (agent.common / "objects" / "info" / "alternates").write_text(f"{away}/objects\n")


@form()
def committed_object_deleted(agent: Agent) -> None:
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    blob = agent.git("rev-parse", "HEAD:work.txt")
    (agent.common / "objects" / blob[:2] / blob[2:]).unlink()


@form()
def commit_replaced_so_that_all_seems_merged(agent: Agent) -> None:
    """A branch that seems to be merged is deleted with its workspace."""
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    base = agent.machine.place.base or ""
    merge = agent.git("commit-tree", f"{base}^{{tree}}", "-p", "HEAD", "-m", "merged")
    agent.git("replace", base, merge, code=None)


@form()
def grafts_so_that_all_seems_merged(agent: Agent) -> None:
    agent.git("commit", "-q", "--allow-empty", "-m", "the user's", cwd=agent.machine.project)
    agent.git("add", "-A")
    agent.git("commit", "-qm", "of the agent")
    main = agent.git("rev-parse", "HEAD", cwd=agent.machine.project)
    (agent.common / "info").mkdir(exist_ok=True)
    (agent.common / "info" / "grafts").write_text(f"{main} {agent.git('rev-parse', 'HEAD')}\n")


@form()
def folder_of_objects_is_elsewhere(agent: Agent) -> None:
    """Where the bytes of the work would be stored."""
    blob = agent.git("hash-object", "work.txt")
    (agent.elsewhere / "objects").mkdir()
    (agent.common / "objects" / blob[:2]).symlink_to(agent.elsewhere / "objects")


# -- files ----------------------------------------------------------------------------------------------------


@form()
def links_in_a_loop(agent: Agent) -> None:
    (agent.path / "loop").symlink_to("loop")
    (agent.path / "up").symlink_to("..")
    (agent.path / "down").symlink_to(agent.machine.root)


@form()
def unreadable_files(agent: Agent) -> None:
    agent.write("secret.txt").chmod(0)
    agent.write("locked/work.txt")
    (agent.path / "locked").chmod(0)


@form()
def strange_names(agent: Agent) -> None:
    names = [b"-rf", b"--help", b"a\nb", b'quo"te', b"\xff\xfe", b"tab\tx", b":(top)x", b"*", b" ", b"\\", b"-/x"]
    for name in names:
        path = os.path.join(os.fsencode(agent.path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(WORK)
        agent.work[name] = WORK


@form()
def names_like_git(agent: Agent) -> None:
    for name in (".GIT/config", "git~1/config", ".git ./config", "x/.GiT"):
        agent.write(name)
        agent.work[name.encode()] = WORK


@form()
def pipes_and_sockets(agent: Agent) -> None:
    os.mkfifo(agent.path / "pipe")
    short = os.open(agent.path, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{short}/socket")
    os.close(short)


@form()
def ignore_file_is_a_pipe(agent: Agent) -> None:
    (agent.path / ".gitignore").unlink()
    os.mkfifo(agent.path / ".gitignore")


@form()
def attributes_file_is_a_pipe(agent: Agent) -> None:
    (agent.path / ".gitattributes").unlink()
    os.mkfifo(agent.path / ".gitattributes")


@form()
def submodules_file_is_a_pipe(agent: Agent) -> None:
    os.mkfifo(agent.path / ".gitmodules")


@form()
def tracked_file_is_a_pipe(agent: Agent) -> None:
    (agent.path / "kept.txt").unlink()
    os.mkfifo(agent.path / "kept.txt")


@form()
def very_deep_folders(agent: Agent) -> None:
    fd = os.open(agent.path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=fd)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


@form()
def ignore_file_that_hides_the_work(agent: Agent) -> None:
    """As tools write it into a folder that they fill."""
    agent.write(".gitignore", "*\n")


@form()
def tracked_folder_is_a_link(agent: Agent) -> None:
    shutil.rmtree(agent.path / "src")
    (agent.path / "src").symlink_to(agent.machine.project / "src")


@form()
def files_of_another_user(agent: Agent) -> None:
    """As an agent in a container leaves them. Only root can say so here."""
    for folder, _, names in os.walk(agent.path):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            if os.geteuid() == 0:
                os.chown(path, 54321, 54321, follow_symlinks=False)


@form(holds=True)
def git_file_is_a_loop(agent: Agent) -> None:
    (agent.path / ".git").unlink()
    (agent.path / ".git").symlink_to(".git")
