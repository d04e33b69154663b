"""Sessions as processes, each under its own supervisor (supervisor.py) with its folder in the spool (spool.py).

Here: starting supervisors, adopting them, their state, and the processes that a dead one left behind. For agents that
have no headless mode: what a terminal adds to a supervised process, a size and a screen. The supervisor owns the
terminal, so it survives the engine as the agent does. Never here: anything that must continue while no engine runs.
"""

import asyncio
import contextlib
import errno
import math
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection

import msgspec

from paceline.agents.stream.screen import COLUMNS, ROWS, BoundedScreen
from paceline.core.values.session_output import Channel
from paceline.errors import ExecutorError, InvalidInput
from paceline.executors import spool, supervisor
from paceline.executors.interface import (
    DEFAULT_GRACE_SECONDS,
    Cause,
    Handle,
    IsNeeded,
    Launch,
    OutputLimits,
    PruneResult,
    SessionState,
)
from paceline.executors.proc_table import all_processes, boot_id, contents, start_ticks, stat_fields
from paceline.executors.spool_writer import STATUS, Value, write_status

UNKNOWN_END_SECONDS = 0.1
"""The wait where the epoll is of no use: it wakes at once for an end that cannot be read yet, and never for a
supervisor that cannot be watched."""
_ARGUMENTS_TOO_LONG = "the command line and the environment are too long for the system; pass long input on stdin"
FILES_PER_SESSION = 2
"""The engine keeps one file open for a session, and a few more for a moment while it starts one."""
OTHER_FILES = 512
"""The database, the log, and connections of clients."""
SLACK_SECONDS = 30.0
"""How long a supervisor that is seen to be beyond time-out and grace may take: it ends leftovers (5 s), and the machine
may be busy."""
CHECK_SECONDS = 10.0
"""How often the state of a supervisor is read: one small file per session, so not at every heartbeat."""
_STOPPED = (b"T", b"t")
"""The states of a process that was stopped by a signal or by a debugger."""
LAST_SCREEN = "screen.txt"
TERMINAL_MARK = "terminal"
MARK_VARIABLE = "PACELINE_SPOOL"
"""Names the attempt's folder in the environment of every process of its session."""
_DEATH_SECONDS = 2.0
"""How long to wait for a killed process to be gone; one in uninterruptible sleep is not waited for longer."""


class SupervisorWatch:
    """The judgement about a supervisor that lives but does not work: it is stopped, or stuck in the kernel.

    Such a supervisor would keep its slot forever, because only it can end its session at a limit of time. Times are
    `RunningTime`, as the supervisor's own are: the time in which a machine sleeps or is frozen does not count.
    """

    def __init__(self) -> None:
        self._check_at = 0.0
        self._overdue_since: float | None = None
        self._stopped_since: float | None = None

    def verdict(self, status: spool.SessionStatus, now: float) -> Cause | None:
        """Return the limit at which the supervisor should have ended its session, and did not."""
        if status.supervisor_pid is None or status.monotonic_at is None:
            return None
        if status.timeout is not None and now > status.monotonic_at + status.timeout + status.grace:
            # The slack begins when this is seen: after a freeze the supervisor first learns what it has missed.
            self._overdue_since = now if self._overdue_since is None else self._overdue_since
            if now > self._overdue_since + SLACK_SECONDS:
                return "timed_out"
        else:
            self._overdue_since = None
        if now < self._check_at:
            return None
        self._check_at = now + CHECK_SECONDS
        fields = stat_fields(status.supervisor_pid)
        if not fields or fields[0] not in _STOPPED:
            self._stopped_since = None
            return None
        if self._stopped_since is None:
            self._stopped_since = now
        is_too_long = status.stall is not None and now > self._stopped_since + status.stall + status.grace
        return "stalled" if is_too_long else None


class ProcessHandle:
    """One session. `state` trusts the lock and the pidfd; a pid from the disk is only checked against them."""

    def __init__(self, attempt_id: str, folder: str, child_pid: int | None = None) -> None:
        self.attempt_id = attempt_id
        self.folder = folder
        self.has_killed = False
        """Whether its dead supervisor had left processes behind."""
        is_terminal = os.path.exists(os.path.join(folder, TERMINAL_MARK))
        self.channels: tuple[Channel, ...] = ("screen",) if is_terminal else ("stdout", "stderr")
        self._readers = {channel: spool.OutputReader(folder, channel) for channel in self.channels}
        self._child_pid = child_pid
        self._status: spool.SessionStatus | None = None
        self._over: SessionState | None = None
        self._stop_grace: float | None = None
        self._watch = SupervisorWatch()
        self.pidfd = None if child_pid is None else _open_pidfd(child_pid)

    def state(self) -> SessionState:
        """Return the current state. It no longer changes after the end.

        While its end cannot be read because too many files are open, it counts as running: a later call finds out.
        """
        if self._over is None:
            try:
                if self.is_alive():
                    return self._running()
                self._over = self._conclude()
            except OSError as error:
                if not spool.is_no_file_free(error):
                    raise
                return SessionState(phase="running")
        return self._over

    def read_new(self, channel: Channel) -> bytes:
        """Return the next piece of output."""
        return self._readers[channel].read(is_over=self._over is not None)

    def rewind(self) -> None:
        """Read the output from its beginning again."""
        self._readers = {channel: spool.OutputReader(self.folder, channel) for channel in self.channels}

    def written_at(self, channel: Channel) -> float | None:
        """Return the time of the last write to the file that the last piece came from."""
        return self._readers[channel].written_at

    def is_alive(self) -> bool:
        """Return whether the supervisor is alive."""
        if self.pidfd is None:
            self._attach()
        return spool.is_locked(self.folder) if self.pidfd is None else not _has_exited(self.pidfd)

    def _attach(self) -> None:
        """Open a pidfd of a supervisor that another engine started, once it has written its pid."""
        status = self._running_status()
        if status is None or status.supervisor_pid is None or status.boot_id != boot_id():
            return
        pidfd = _open_pidfd(status.supervisor_pid)
        if pidfd is None:
            return
        # Checked after opening: a process with this number and this start time is the one that wrote the status.
        if start_ticks(status.supervisor_pid) != status.supervisor_ticks:
            os.close(pidfd)
            return
        self.pidfd = pidfd
        if self._stop_grace is not None:
            self._signal_supervisor(signal.SIGTERM)

    def request_stop(self, grace: float) -> None:
        """Ask the supervisor to end the agent."""
        if self.state().is_over:
            return
        self._stop_grace = grace
        spool.request_stop(self.folder, grace)
        self._signal_supervisor(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the supervisor, and the agent with it."""
        if self.is_alive() and self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                kill_and_wait(self.pidfd)
        self.state()

    def end_overdue(self, now: float) -> None:
        """End the session in place of a supervisor that is stopped or stuck. `now` is of `RunningTime`."""
        if self._over is not None or self.pidfd is None:
            return
        try:
            status = self._running_status()
        except OSError:
            return
        cause = None if status is None else self._watch.verdict(status, now)
        if cause is None:
            return
        self._status = spool.read_session_status(self.folder)
        if self._status == status:  # else it has noted time in which it could not run
            self.kill()
            self._over = self.state()
            if self._over.phase == "lost":  # else it has recorded its end before
                changes = {"phase": "ended", "cause": cause, "signal": signal.SIGKILL, "ended_at": time.time()}
                self._over = msgspec.structs.replace(self._over, **changes, message="its supervisor hung")

    def _signal_supervisor(self, number: signal.Signals) -> None:
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def _conclude(self) -> SessionState:
        """Return the final state. A session without a final status is lost, and its leftovers are killed."""
        if self._child_pid is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child_pid, os.WNOHANG)
        status = spool.read_session_status(self.folder)
        if status is None or status.phase == "running":
            self.has_killed = kill_leftovers(self.folder, status)
            state = _lost(self.folder, status)
        else:
            state = SessionState(**{name: getattr(status, name) for name in SessionState.__struct_fields__})
        if "screen" in self.channels:
            self._save_screen()
        return state

    def screen(self) -> list[str]:
        """Return the rows of the terminal's screen."""
        screen, recording = BoundedScreen(), spool.OutputReader(self.folder, "screen")
        while piece := recording.read():
            screen.feed(piece)
        return screen.display()

    def _save_screen(self) -> None:
        """Save the last screen as text beside the recording."""
        text = "\n".join(self.screen()).rstrip() + "\n"
        with contextlib.suppress(OSError), open(os.path.join(self.folder, LAST_SCREEN), "w", encoding="utf-8") as file:
            file.write(text)

    def release(self) -> None:
        """Close the pidfd."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _running(self) -> SessionState:
        status = self._running_status()
        if status is None:
            return SessionState(phase="running")
        return SessionState(phase="running", pid=status.pid, started_at=status.started_at)

    def _running_status(self) -> spool.SessionStatus | None:
        if self._status is None:
            self._status = spool.read_session_status(self.folder)
        return self._status


class ProcessExecutor:
    """An executor that runs agents as supervised processes over one spool folder, with or without a terminal.

    With a `lease_file` every supervisor ends its agent once the time in that file has passed.
    """

    def __init__(
        self,
        spool_root: str,
        *,
        lease_file: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool = spool.Spool(spool_root)
        self._lease_file = lease_file
        self._pruner = spool.ArchivePruner(self.spool)
        self._running_time = supervisor.RunningTime(CHECK_SECONDS, monotonic)
        self._handles: dict[str, ProcessHandle] = {}
        self._watched: dict[int, ProcessHandle] = {}
        self._to_archive: set[str] = set()
        """Sessions to put away once they are over, without a report."""
        self._epoll = select.epoll()

    def start(self, launch: Launch) -> ProcessHandle:
        """Start a session. This takes about a millisecond; the agent itself starts in the background."""
        _check(launch)
        folder = self.spool.create(launch.attempt_id)
        try:
            pid = self._start_supervisor(launch, folder)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise spool.spool_error(self.spool.root, error) from error
        return self._keep(ProcessHandle(launch.attempt_id, folder, pid))

    def adopt(self, attempt_id: str) -> ProcessHandle | None:
        """Return the session of this attempt, if it ever began."""
        known = self._handles.get(attempt_id)
        if known is not None:
            return known
        folder = self.spool.folder(attempt_id)
        if folder is None:
            return None
        handle = ProcessHandle(attempt_id, folder)
        return handle if handle.state().is_over else self._keep(handle)

    def unarchived(self) -> list[str]:
        """Return the attempts that were not put away."""
        return self.spool.unarchived()

    def stop(self, handle: Handle, grace: float = DEFAULT_GRACE_SECONDS) -> None:
        """Send TERM to the agent's group, and KILL after the grace."""
        _own(handle).request_stop(grace)

    def kill(self, handle: Handle) -> None:
        """Kill supervisor and agent at once."""
        _own(handle).kill()

    async def wait_ended(self, timeout: float) -> list[Handle]:
        """Return ended sessions as soon as there are any, or an empty list after `timeout` seconds at the latest."""
        if len(self._watched) < len(self._handles):  # some could not be watched when they were adopted
            for handle in self._handles.values():
                self._watch(handle)
        if len(self._watched) < len(self._handles):
            timeout = min(timeout, UNKNOWN_END_SECONDS)  # nothing wakes up for those that cannot be watched
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        epoll = self._epoll.fileno()  # it may be closed while a cancelled caller leaves
        loop.add_reader(epoll, woken.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await woken.wait()
        finally:
            loop.remove_reader(epoll)
        ended = self.take_ended()
        if woken.is_set() and not ended:
            await asyncio.sleep(min(timeout, UNKNOWN_END_SECONDS))
        return ended

    def take_ended(self) -> list[Handle]:
        """Return the sessions that ended since the last call, without waiting."""
        now = self._running_time()
        for handle in self._handles.values():
            handle.end_overdue(now)
        events = self._epoll.poll(0, max(1, len(self._watched)))
        ended = [self._watched[fd] for fd, _ in events]
        unwatched = (handle for handle in self._handles.values() if handle.pidfd not in self._watched)
        ended += [handle for handle in unwatched if handle.state().is_over]
        return [handle for handle in ended if handle.state().is_over and not self._forget(handle)]

    def sweep(self, keep: Collection[str]) -> dict[str, str]:
        """Stop sessions that no unit owns, and archive them."""
        done: dict[str, str] = {}
        for attempt_id in self.spool.unarchived():
            if attempt_id in keep or attempt_id in self._to_archive:
                continue
            handle = self.adopt(attempt_id)
            if handle is None:
                continue
            if not handle.state().is_over:
                handle.request_stop(DEFAULT_GRACE_SECONDS)
                done[attempt_id] = "stopped"
            elif handle.has_killed:
                done[attempt_id] = "killed"
            self.archive(handle)
        return done

    def archive(self, handle: Handle) -> None:
        """Move the attempt to the archive, so that the next engine need not examine it."""
        if not handle.state().is_over:
            self._to_archive.add(handle.attempt_id)
            return
        self.spool.archive(handle.attempt_id)
        self._pruner.note_archived()

    def prune(self, limits: OutputLimits, is_needed: IsNeeded, now: float) -> PruneResult:
        """Remove a few attempts that are beyond the limits."""
        return self._pruner.prune_step(limits, is_needed, now)

    def close(self) -> None:
        """Release all sessions; they continue."""
        for handle in self._handles.values():
            handle.release()
        self._handles.clear()
        self._watched.clear()
        self._epoll.close()

    def _options(self, launch: Launch, folder: str) -> list[str]:
        """Return the options of the supervisor (`supervisor.Options`). `terminal` is the size of the one it creates."""
        given = {
            "terminal": f"{ROWS}x{COLUMNS}" if launch.terminal else None,
            "folder": folder,
            "cwd": os.path.abspath(launch.cwd),
            "grace": launch.grace,
            "timeout": launch.timeout,
            "stall": launch.stall,
            "start_by": None if launch.start_by == math.inf else launch.start_by,
            "merged": "1" if launch.merged else None,
            "lease": None if self._lease_file is None else os.path.abspath(self._lease_file),
            "lc_ctype": launch.env.get("LC_CTYPE"),
        }
        return [f"{key}={value}" for key, value in given.items() if value is not None]

    def _start_supervisor(self, launch: Launch, folder: str) -> int | None:
        """Return the supervisor's pid; None if the system refuses a command line of this size."""
        lock = spool.take_lock(folder)
        try:
            if launch.stdin:
                spool.write_input(folder, launch.stdin)
            if launch.terminal:
                with open(os.path.join(folder, TERMINAL_MARK), "w"):
                    pass  # before the supervisor starts, so that any engine that adopts the session knows its type
            return _spawn(self._options(launch, folder), launch, folder, lock)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            refused: dict[str, Value] = {"phase": "not_started", "message": _ARGUMENTS_TOO_LONG}
            write_status({**refused, "boot_id": boot_id(), "started_at": time.time()}, folder=folder)
            return None
        finally:
            os.close(lock)

    def _keep(self, handle: ProcessHandle) -> ProcessHandle:
        self._handles[handle.attempt_id] = handle
        self._watch(handle)
        return handle

    def _watch(self, handle: ProcessHandle) -> None:
        if handle.pidfd is not None and handle.pidfd not in self._watched:
            self._watched[handle.pidfd] = handle
            self._epoll.register(handle.pidfd, select.EPOLLIN)

    def _forget(self, handle: ProcessHandle) -> bool:
        """Forget an ended session. Return whether it was to be put away, so that it is not reported."""
        handle.state()
        pidfd = self._handles.pop(handle.attempt_id).pidfd
        if self._watched.pop(pidfd or -1, None) is not None and pidfd is not None:
            # Closing it is not enough: a process that is just being started, such as git, may have a copy.
            self._epoll.unregister(pidfd)
        handle.release()
        if handle.attempt_id not in self._to_archive:
            return False
        self._to_archive.discard(handle.attempt_id)
        try:
            self.archive(handle)
        except OSError as error:
            spool.log.warning("%s could not be put away: %s; the next sweep finds it", handle.attempt_id, error)
        return True


def _spawn(options: list[str], launch: Launch, folder: str, lock: int) -> int:
    """Start a supervisor in a session of its own that inherits only the lock.

    `posix_spawn` costs the same however large the engine is. TERM is blocked until the supervisor is ready.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.path.join(folder, "supervisor.log"), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, lock, supervisor.LOCK_FD),
    ]
    python = [sys.executable, "-I", "-S", "-X", "utf8", "-c", supervisor.BOOTSTRAP, os.path.dirname(__file__)]
    return os.posix_spawn(
        sys.executable,
        [*python, *options, "--", *launch.argv],
        {**launch.env, MARK_VARIABLE: folder},
        file_actions=files,
        setsid=True,
        setsigmask=[signal.SIGTERM],
        setsigdef=[signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT],
    )


def _check(launch: Launch) -> None:
    """Raise `InvalidInput` for what the system would refuse without a reason."""
    if not launch.argv or not launch.argv[0]:
        raise InvalidInput("the command is empty; name a program to run")
    texts = (*launch.argv, launch.cwd, *launch.env, *launch.env.values())
    if any("\0" in text for text in texts):
        raise InvalidInput("a command line, an environment or a path must not contain a NUL character; remove it")


def _own(handle: Handle) -> ProcessHandle:
    if not isinstance(handle, ProcessHandle):
        raise ExecutorError(f"attempt {handle.attempt_id} is not a session of this executor")
    return handle


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _has_exited(pidfd: int, within: float = 0.0) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(within * 1000))


def _lost(folder: str, status: spool.SessionStatus | None) -> SessionState:
    if status is not None and status.boot_id != boot_id():
        message = "the machine was restarted while it ran"
    elif status is None and os.path.lexists(os.path.join(folder, STATUS)):
        message = "its final status cannot be read"
    elif not os.path.isdir(folder):
        message = f"its folder was deleted from the spool while it ran ({folder})"
    else:
        message = spool.last_log_line(folder) or "its supervisor was killed"
    pid, started_at = (None, None) if status is None else (status.pid, status.started_at)
    return SessionState(phase="lost", pid=pid, started_at=started_at, message=message)


def raise_file_limit(sessions: int) -> str | None:
    """Raise the soft limit of open files as far as needed and allowed. Return a warning if that is not enough.

    It is not raised further: sessions inherit it, and some programs close every file up to the limit one by one.
    """
    needed = sessions * FILES_PER_SESSION + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < highest:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            soft = highest
    if soft == resource.RLIM_INFINITY or soft >= sessions + OTHER_FILES // 8:
        return None
    return (
        f"this process may open {soft} files, which is not enough for a pool of {sessions} sessions;"
        " raise the limit (ulimit -n), or lower the pool"
    )


# -- processes that a dead supervisor left behind ----------------------------------------------------------------
#
# The kernel kills the agent together with its supervisor, but not the agent's children. A process belongs to the
# session if it carries the session's mark, which every process of the session inherits in its environment. The process
# group of the agent is no proof by itself: once the agent is gone, another group can get its number. It is proof as
# long as the agent itself, or a process with the mark, is in that group, because the kernel does not reuse a number
# while its group exists.


def kill_leftovers(folder: str, status: spool.SessionStatus | None) -> bool:
    """Kill leftovers of the session until none is found. Return whether there were any."""
    killed: set[int] = set()
    while found := set(find_leftovers(folder, status)) - killed:
        killed |= found
        for pid, ticks in ((pid, start_ticks(pid)) for pid in found):
            if ticks is not None:
                _kill_one(pid, ticks)
    return bool(killed)


def find_leftovers(folder: str, status: spool.SessionStatus | None) -> list[int]:
    """Return the pids that provably belong to the session of this folder."""
    if status is not None and status.boot_id != boot_id():
        return []
    mark = os.fsencode(f"{MARK_VARIABLE}={folder}")
    living = {pid: fields for pid, fields in all_processes() if fields[0] not in (b"Z", b"X")}
    found = {pid for pid in living if mark in _environment(pid)}
    if status is not None and status.pid is not None and status.ticks is not None:
        number = str(status.pid).encode()
        # The group or session with the agent's number. Nobody in it is older than the agent, which may be a zombie.
        group = {pid for pid, each in living.items() if number in each[2:4] and int(each[19]) >= status.ticks}
        if found & group or start_ticks(status.pid) == status.ticks:
            found |= group
    return [pid for pid in living if pid in found]


def _environment(pid: int) -> list[bytes]:
    try:
        return contents(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def _kill_one(pid: int, ticks: int) -> None:
    """Kill through a pidfd, so that it cannot hit a process that got the same number meanwhile."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_ticks(pid) == ticks:
            kill_and_wait(pidfd)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def kill_and_wait(pidfd: int) -> None:
    """Send KILL and wait a moment for the process to end."""
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    _has_exited(pidfd, within=_DEATH_SECONDS)
