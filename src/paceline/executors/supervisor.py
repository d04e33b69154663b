"""The small process that stands beside one agent, and outlives the engine.

It holds the lock of its attempt folder for its whole life, starts the agent, records what the agent prints
and how it ended, and ends it on request, at its time-out or when it stalls. Every other process learns of
the session through the folder and the lock alone.

Here: the standard library and two small modules of this folder, because there is one such process for each
session (`BOOTSTRAP` imports them without the packages around them). Never here: any other import of Paceline, or
the meaning of what the agent prints.

It is started with the lock as file descriptor 3, the agent's environment as its own (so that no secret is
ever written down) and `key=value ... -- command line` as arguments.
"""

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import sys
import termios
import time

from paceline.executors.proc_table import boot_id, children_of, contents, cpu_of_descendants, start_ticks
from paceline.executors.spool_writer import Recording, Value, write_status

LOCK_FD = 3
BOOTSTRAP = """\
import sys
for name, path in ("paceline", ""), ("paceline.executors", sys.argv.pop(1)):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [path]
from paceline.executors.supervisor import main
main()
"""
"""The program: with empty packages in place of the real ones, whose imports would cost 60 MB and half a second."""
READ_BYTES = 1 << 16
LEFTOVER_SECONDS = 0.5
"""What an agent leaves behind has so long to end itself after TERM."""
UNKILLABLE_SECONDS = 5.0
"""A process in uninterruptible sleep cannot be waited for; the session ends without it."""
IDLE_CPU_SHARE = 0.01
"""An agent that waits for nothing at all still has timers; below this share of a core it does nothing."""
DRAIN_BYTES = 8 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)


class Options:
    """What the engine asked for."""

    def __init__(self, arguments: list[str]) -> None:
        split = arguments.index("--")
        given = dict(argument.split("=", 1) for argument in arguments[:split])
        self.argv = arguments[split + 1 :]
        self.folder = given["folder"]
        self.cwd = given["cwd"]
        self.grace = float(given["grace"])
        self.timeout = float(given.get("timeout", "inf"))
        self.stall = float(given.get("stall", "inf"))
        self.rows = int(given.get("rows", "0"))
        self.columns = int(given.get("columns", "0"))
        # An isolated Python may set LC_CTYPE by itself; the agent gets what was meant for it.
        self.env = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
        if "lc_ctype" in given:
            self.env["LC_CTYPE"] = given["lc_ctype"]


class Agent:
    """The child process and our ends of its channels."""

    def __init__(self, pid: int, outputs: dict[int, Recording], terminal: int | None = None) -> None:
        self.pid = pid
        self.ticks = start_ticks(pid)
        self.outputs = outputs
        self.terminal = terminal


class NotStarted(Exception):
    """The agent never ran; the message says why."""


class Supervisor:
    """One session from its start to its status on disk."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.started_at = time.time()
        self.cause = "exit"
        self.kill_at = float("inf")
        self.timeout_at = time.monotonic() + options.timeout
        self.term_seen = False
        self.has_ended = False
        self.typed = b""
        self.keys_fd = -1
        self.poller = select.poll()
        self.wake_fd, self.signal_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        self.watch_signals()
        try:
            if os.path.exists("stop") or self.term_seen:
                raise NotStarted("it was stopped before the agent ran")
            self.agent = start_in_terminal(self.options) if self.options.rows else start_on_pipes(self.options)
        except (NotStarted, OSError) as error:
            write_status(self.status("not_started", message=str(error)))
            return
        self.recordings = list(self.agent.outputs.values())
        self.quiet = QuietTime(self.options.stall)
        # Not synced: it is of no use after a power failure, and the agent's first output must not wait for a disk.
        write_status(self.status("running"), sync=False)
        self.watch_outputs()
        while not self.has_ended:
            self.turn()
        self.finish()

    # --- while it runs ---------------------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """SIGTERM came blocked from the engine, so that a stop cannot hit a supervisor that is not ready for it."""
        signal.set_wakeup_fd(self.signal_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self.poller.register(self.wake_fd, select.POLLIN)

    def on_term(self, *_: object) -> None:
        self.term_seen = True

    def watch_outputs(self) -> None:
        for fd in self.agent.outputs:
            os.set_blocking(fd, False)
            self.poller.register(fd, select.POLLIN)
        if self.agent.terminal is not None:
            self.typed = contents("stdin") if os.path.exists("stdin") else b""
            # Opened for both directions, it never comes to an end when a writer leaves.
            self.keys_fd = os.open("keys", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.poller.register(self.keys_fd, select.POLLIN)
            self.await_room_for_keys()

    def turn(self) -> None:
        """Waits for something to happen, and does what is due."""
        due = min(self.kill_at, self.timeout_at, self.quiet.look_at)
        wait = None if due == float("inf") else max(0.0, due - time.monotonic()) * 1000 + 1
        for fd, event in self.poller.poll(wait):
            self.serve(fd, event)
        self.reap()
        if self.term_seen:
            self.term_seen = False
            asked, grace = stop_request(self.options.grace)
            self.end_agent("stopped" if asked else "terminated", grace)
        now = time.monotonic()
        if now >= self.kill_at:
            self.kill_at = float("inf")
            self.signal_group(signal.SIGKILL)
        if now >= self.timeout_at:
            self.timeout_at = float("inf")
            self.end_agent("timed_out", self.options.grace)
        if self.quiet.is_over(now, self.recordings):
            self.end_agent("stalled", self.options.grace)

    def serve(self, fd: int, event: int) -> None:
        if fd == self.wake_fd:
            os.read(fd, READ_BYTES)
        elif fd == self.keys_fd:
            self.typed += os.read(fd, READ_BYTES)
            self.await_room_for_keys()
        elif event & select.POLLOUT:
            self.type_keys(fd)
        else:
            self.pump(fd)

    def pump(self, fd: int) -> bool:
        """Records what there is on one output; false once nothing is left."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose last user has gone answers with an error
        if data:
            self.agent.outputs[fd].write(data)
            return True
        self.poller.unregister(fd)
        self.agent.outputs.pop(fd)
        if fd == self.agent.terminal:
            self.agent.terminal = None
        os.close(fd)
        return False

    def await_room_for_keys(self) -> None:
        if self.agent.terminal is not None:
            wanted = select.POLLIN | select.POLLOUT if self.typed else select.POLLIN
            self.poller.modify(self.agent.terminal, wanted)

    def type_keys(self, fd: int) -> None:
        try:
            self.typed = self.typed[os.write(fd, self.typed) :]
        except BlockingIOError:
            return
        except OSError:
            self.typed = b""
        self.await_room_for_keys()

    def reap(self) -> None:
        """Orphans of the agent come to us. The agent itself is left a zombie, which keeps its group's number taken."""
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            if ended.si_pid == self.agent.pid:
                self.has_ended = True
                return
            os.waitpid(ended.si_pid, 0)

    def end_agent(self, cause: str, grace: float) -> None:
        """TERM to the group, and KILL once the grace is over. The first cause stays; a shorter grace wins."""
        if self.cause == "exit":
            self.cause = cause
        self.kill_at = min(self.kill_at, time.monotonic() + grace)
        self.signal_group(signal.SIGTERM)

    def signal_group(self, number: int) -> None:
        try:
            os.killpg(self.agent.pid, number)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise

    # --- its end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The rest of the group goes first, then the agent's number is given back, then every other descendant."""
        ended_at = time.time()
        self.signal_group(signal.SIGTERM)
        _, code = os.waitpid(self.agent.pid, 0)
        end_descendants()
        self.drain()
        for recording in self.recordings:
            recording.close()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        write_status(
            self.status(
                "ended",
                exit_code=os.WEXITSTATUS(code) if os.WIFEXITED(code) else None,
                signal=os.WTERMSIG(code) if os.WIFSIGNALED(code) else None,
                cause=self.cause,
                ended_at=ended_at,
                max_rss_bytes=used.ru_maxrss * 1024,
                cpu_seconds=round(used.ru_utime + used.ru_stime, 6),
                message="; ".join(filter(None, (recording.trouble for recording in self.recordings))),
            )
        )

    def drain(self) -> None:
        """What is still in the pipes. Nobody is left to write, but somebody unkillable might: there is a bound."""
        for fd in list(self.agent.outputs):
            for _ in range(DRAIN_BYTES // READ_BYTES):
                if not self.pump(fd):
                    break

    def status(self, phase: str, **more: Value) -> dict[str, Value]:
        agent = getattr(self, "agent", None)
        return {
            "phase": phase,
            "boot_id": boot_id(),
            "supervisor_pid": os.getpid(),
            "supervisor_ticks": start_ticks(os.getpid()),
            "pid": agent.pid if agent else None,
            "ticks": agent.ticks if agent else None,
            "started_at": self.started_at,
            "rows": self.options.rows or None,
            "columns": self.options.columns or None,
            **more,
        }


class QuietTime:
    """Whether the agent has stalled: no output for `stall` seconds, and next to no CPU in the second half of them.

    The CPU of a tree costs a walk through all processes, so it is looked at only when the output has been quiet.
    """

    def __init__(self, stall: float) -> None:
        self.half = stall / 2
        self.look_at = time.monotonic() + self.half
        self.seen_bytes = 0
        self.seen_cpu: float | None = None

    def is_over(self, now: float, recordings: list[Recording]) -> bool:
        if now < self.look_at:
            return False
        self.look_at = now + self.half
        received = sum(recording.received_bytes for recording in recordings)
        before, self.seen_cpu = self.seen_cpu, None
        if received != self.seen_bytes:
            self.seen_bytes = received
            return False
        self.seen_cpu = cpu_of_descendants()
        if before is None or abs(self.seen_cpu - before) > self.half * IDLE_CPU_SHARE:
            return False
        self.look_at = float("inf")
        return True


# --- starting the agent --------------------------------------------------------------------------------------


def start_on_pipes(options: Options) -> Agent:
    """The agent reads the file `stdin` and writes to two pipes."""
    stdin = os.open("stdin" if os.path.exists("stdin") else os.devnull, os.O_RDONLY)
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    outputs = {out_read: Recording("stdout"), err_read: Recording("stderr")}
    pid = fork_agent(options, (stdin, out_write, err_write))
    for fd in (stdin, out_write, err_write):
        os.close(fd)
    return Agent(pid, outputs)


def start_in_terminal(options: Options) -> Agent:
    """The agent has a terminal of its own; what is written there is recorded as it comes."""
    if not os.path.exists("keys"):
        os.mkfifo("keys", 0o600)
    master, slave = os.openpty()
    size = options.rows.to_bytes(2, sys.byteorder) + options.columns.to_bytes(2, sys.byteorder) + bytes(4)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    outputs = {master: Recording("screen")}
    pid = fork_agent(options, (slave, slave, slave))
    os.close(slave)
    return Agent(pid, outputs, master)


def fork_agent(options: Options, channels: tuple[int, int, int]) -> int:
    """Forks and runs the agent; `NotStarted` with the reason if it cannot be run."""
    report_read, report_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_agent(options, channels, parent, report_write)
    os.close(report_write)
    reason = b""
    while piece := os.read(report_read, 4096):  # ends at exec, which closes the other side
        reason += piece
    os.close(report_read)
    if reason:
        os.waitpid(pid, 0)
        raise NotStarted(reason.decode("utf-8", "replace"))
    return pid


def die_with(parent: int) -> None:
    """In a child: be killed when the parent ends, however it ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)  # it died before it could take us with it


def become_agent(options: Options, channels: tuple[int, int, int], parent: int, report_fd: int) -> None:
    """In the child: turns into the agent, or tells the parent why not."""
    doing = "cannot prepare the process"
    try:
        os.setsid()
        die_with(parent)
        for number, fd in enumerate(channels):
            os.dup2(fd, number)
        if options.rows:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        doing = f"cannot work in {options.cwd!r}"
        os.chdir(options.cwd)
        if not os.access(".", os.W_OK):
            raise PermissionError(errno.EACCES, "the folder is not writable")
        # An ignored signal stays ignored after exec. Python ignores some, and a shell's background job ignores others.
        for number in signal.valid_signals():
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        doing = f"cannot run {options.argv[0]!r}"
        os.execvpe(options.argv[0], options.argv, options.env)
    except OSError as error:
        hint = " (is it installed, and on PATH?)" if error.errno == errno.ENOENT and "run" in doing else ""
        os.write(report_fd, f"{doing}: {error.strerror}{hint}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def end_descendants() -> None:
    """Ends what the agent left behind. As their parents die, all of them become our children."""
    begun = time.monotonic()
    asked: set[int] = set()
    while has_children():
        quiet_for = time.monotonic() - begun
        if quiet_for > UNKILLABLE_SECONDS:
            return
        for pid in children_of(os.getpid()):
            if quiet_for > LEFTOVER_SECONDS:
                signal_one(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                signal_one(pid, signal.SIGTERM)
        time.sleep(0.01)


def signal_one(pid: int, number: int) -> None:
    """A child that runs as somebody else may be beyond our reach; it must not take the session's result with it."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return


def has_children() -> bool:
    """Reaps those that have ended; whether any are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def stop_request(grace: float) -> tuple[bool, float]:
    """Whether the engine asked for the end, and how long the agent may take; else it was the machine or a person."""
    try:
        return True, float(contents("stop"))
    except FileNotFoundError:
        return False, grace
    except ValueError:
        return True, grace


def main() -> None:
    """Takes the lock (it is handed over locked, so this cannot fail unless it is misused), then runs the session."""
    fcntl.flock(LOCK_FD, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.set_inheritable(LOCK_FD, False)
    os.closerange(LOCK_FD + 1, os.sysconf("SC_OPEN_MAX"))
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("cannot become the reaper of the agent's orphans")
    options = Options(sys.argv[1:])
    os.chdir(options.folder)
    Supervisor(options).run()
