"""The supervisor: a small process that runs one agent and outlives the engine.

It holds the lock of its attempt folder for its whole life. It starts the agent, records its output and its end, and
ends it on request, at its time-out, when it stalls, or when the lease of its host runs out. Other processes see the
session only through the folder and the lock.

Here: the standard library and a few small modules of this folder, because every session has such a process (`BOOTSTRAP`
imports them without the packages around them). Never here: any other import of Paceline, or the meaning of the output.

It is started with the lock as file descriptor 3, the agent's environment as its own (so that no secret is written to
disk) and `key=value ... -- command line` as arguments.
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
from collections.abc import Callable

from paceline.executors.proc_table import boot_id, children_of, contents, cpu_of_descendants, start_ticks
from paceline.executors.spool_writer import Recording, Value, record_end, record_running

LOCK_FD = 3
BOOTSTRAP = """\
import sys
for name, path in ("paceline", ""), ("paceline.executors", sys.argv.pop(1)):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [path]
from paceline.executors.supervisor import main
main()
"""
"""The program. Empty packages replace the real ones, whose imports would cost 60 MB and half a second."""
READ_BYTES = 1 << 16
"""The size of a pipe's buffer on Linux."""
LEFTOVER_SECONDS = 0.5
"""How long processes that an agent left behind may take to end after TERM."""
UNKILLABLE_SECONDS = 5.0
"""After this time the session ends without processes in uninterruptible sleep: they cannot be killed."""
IDLE_CPU_SHARE = 0.01
"""Below this share of a core an agent counts as idle: even a CLI that only waits has timers."""
DRAIN_BYTES = 8 << 20
"""The most that is read from one pipe after the end: far more than a pipe holds, but bounded."""
LEASE_OVER = "its host had heard from no leader for as long as its lease lasts"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)
LEASE_CHECK_SECONDS = 5.0
"""How often the lease of a host is read: `poll` does not count the time in which a machine sleeps, the lease does."""
TICK_SECONDS = 1.0
"""How often a supervisor reads the clock. A freeze costs its agent up to this time, and each wake-up some
microseconds."""


class Options:
    """The options that the engine passed."""

    def __init__(self, arguments: list[str]) -> None:
        split = arguments.index("--")
        given = dict(argument.split("=", 1) for argument in arguments[:split])
        self.argv = arguments[split + 1 :]
        self.folder = given["folder"]
        self.cwd = given["cwd"]
        self.grace = float(given["grace"])
        self.timeout = float(given.get("timeout", "inf"))
        self.stall = float(given.get("stall", "inf"))
        self.terminal = [int(cells) for cells in given.get("terminal", "").split("x") if cells]
        self.start_by = float(given.get("start_by", "inf"))
        self.merged = "merged" in given
        self.lease = given.get("lease", "")
        # An isolated Python may set LC_CTYPE itself; the agent gets the value that the engine passed.
        self.env = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
        if "lc_ctype" in given:
            self.env["LC_CTYPE"] = given["lc_ctype"]


class NotStarted(Exception):
    """The agent never ran; the message is the reason."""


class Supervisor:
    """One session, from its start to its final status on disk."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.started_at = time.time()
        self.clock = RunningTime()
        self.monotonic_at = self.clock()
        self.frozen_seconds = 0.0
        self.cause = "exit"
        self.kill_at = float("inf")
        self.timeout_at = self.monotonic_at + options.timeout
        self.lease_until = options.start_by
        self.lease_check_at = time.monotonic() if options.lease else float("inf")
        self.quiet_check_at = float("inf")
        self.seen_bytes = 0
        self.seen_cpu: float | None = None
        self.message = ""
        self.pid: int | None = None
        self.ticks: int | None = None
        self.outputs: dict[int, Recording] = {}
        """Our ends of the agent's channels."""
        self.term_seen = False
        self.has_ended = False
        self.typed = b""
        self.poller = select.poll()
        self.wake_fd, self.signal_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        self.watch_signals()
        try:
            if os.path.exists("stop") or self.term_seen:
                raise NotStarted("it was stopped before the agent ran")
            if time.clock_gettime(time.CLOCK_BOOTTIME) > self.options.start_by:
                raise NotStarted("it could have started only after its leader, or its host, had lost its lease")
            start = start_in_terminal if self.options.terminal else start_on_pipes
            self.pid, self.outputs = start(self.options)
        except (NotStarted, OSError) as error:
            record_end(LOCK_FD, self.status("not_started", message=str(error)))
            return
        self.ticks = start_ticks(self.pid)
        self.recordings = list(self.outputs.values())
        self.quiet_check_at = self.clock() + self.options.stall / 2
        record_running(LOCK_FD, self.status("running"))
        self.watch_outputs()
        while not self.has_ended:
            self.turn()
        self.finish()

    # --- while it runs ---------------------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """Install handlers, then unblock TERM: the engine blocked it so that a stop cannot come too early."""
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
        if self.options.terminal and os.path.exists("stdin"):
            self.typed = contents("stdin")
        for fd in self.outputs:
            os.set_blocking(fd, False)
            self.poller.register(fd, select.POLLIN | select.POLLOUT if self.typed else select.POLLIN)

    def turn(self) -> None:
        """Wait for an event, and do what is due."""
        due = min(self.kill_at, self.timeout_at, self.quiet_check_at)
        wait = min(due - self.clock(), self.lease_check_at - time.monotonic(), TICK_SECONDS)
        for fd, event in self.poller.poll(max(0.0, wait) * 1000 + 1):
            self.serve(fd, event)
        self.reap()
        if self.term_seen:
            self.term_seen = False
            asked, grace = stop_request(self.options.grace)
            self.end_agent("stopped" if asked else "terminated", grace)
        now = self.clock()
        if self.clock.frozen_seconds != self.frozen_seconds:
            self.frozen_seconds = self.clock.frozen_seconds
            record_running(LOCK_FD, self.status("running"))  # others measure its limits from `monotonic_at`
        if now >= self.kill_at:
            self.kill_at = float("inf")
            self.signal_group(signal.SIGKILL)
        if now >= self.timeout_at:
            self.timeout_at = float("inf")
            self.end_agent("timed_out", self.options.grace)
        if now >= self.quiet_check_at and self.is_stalled(now):
            self.end_agent("stalled", self.options.grace)
        if time.monotonic() >= self.lease_check_at and self.is_lease_over():
            self.message = LEASE_OVER
            self.end_agent("terminated", self.options.grace)

    def is_stalled(self, now: float) -> bool:
        """Return whether there was no output for `stall` seconds, and almost no CPU time in the second half of them.

        Reading the CPU time of a process tree means reading all processes, so it is read only after a quiet half.
        """
        half = self.options.stall / 2
        self.quiet_check_at = now + half
        received = sum(recording.received_bytes for recording in self.recordings)
        before, self.seen_cpu = self.seen_cpu, None
        if received != self.seen_bytes:
            self.seen_bytes = received
            return False
        self.seen_cpu = cpu_of_descendants()
        if before is None or abs(self.seen_cpu - before) > half * IDLE_CPU_SHARE:
            return False
        self.quiet_check_at = float("inf")
        return True

    def is_lease_over(self) -> bool:
        """Return whether the time has passed up to which the leader trusts this host, in a file that a worker renews.

        A file that cannot be read changes nothing: the time read last counts. So does that of another machine or an
        earlier boot, which is on another clock (`CLOCK_BOOTTIME`).
        """
        try:
            until, boot = contents(self.options.lease).decode().split()
            self.lease_until = float(until) if boot == boot_id() else self.lease_until
        except (OSError, ValueError):
            pass
        left = self.lease_until - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.lease_check_at = time.monotonic() + min(left, LEASE_CHECK_SECONDS) if left > 0 else float("inf")
        return left <= 0

    def serve(self, fd: int, event: int) -> None:
        if fd == self.wake_fd:
            os.read(fd, READ_BYTES)
        elif event & select.POLLOUT:
            self.type_keys(fd)
        else:
            self.pump(fd)

    def pump(self, fd: int) -> bool:
        """Record what one output has. Return False if nothing is left."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose last user has gone reports an error
        if data:
            self.outputs[fd].write(data)
            return True
        self.poller.unregister(fd)
        self.outputs.pop(fd)
        if not self.options.terminal:  # left open: the kernel would hang up on an agent that is still on its way out
            os.close(fd)
        return False

    def type_keys(self, fd: int) -> None:
        try:
            self.typed = self.typed[os.write(fd, self.typed) :]
        except BlockingIOError:
            return
        except OSError:
            self.typed = b""
        if not self.typed:
            self.poller.modify(fd, select.POLLIN)

    def reap(self) -> None:
        """Reap orphans of the agent. The agent itself stays a zombie, so that nobody gets the number of its group."""
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            if ended.si_pid == self.pid:
                self.has_ended = True
                return
            os.waitpid(ended.si_pid, 0)

    def end_agent(self, cause: str, grace: float) -> None:
        """Send TERM to the group, and KILL after the grace. The first cause is kept; a shorter grace wins."""
        if self.cause == "exit":
            self.cause = cause
        self.kill_at = min(self.kill_at, self.clock() + grace)
        self.signal_group(signal.SIGTERM)

    def signal_group(self, number: int) -> None:
        assert self.pid is not None
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    # --- its end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the group, then reap the agent, then end all other descendants, then write the final status."""
        ended_at = time.time()
        self.signal_group(signal.SIGTERM)
        assert self.pid is not None
        _, code = os.waitpid(self.pid, 0)
        end_descendants()
        self.drain()
        for recording in self.recordings:
            recording.close()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        record_end(
            LOCK_FD,
            self.status(
                "ended",
                exit_code=os.WEXITSTATUS(code) if os.WIFEXITED(code) else None,
                signal=os.WTERMSIG(code) if os.WIFSIGNALED(code) else None,
                cause=self.cause,
                ended_at=ended_at,
                max_rss_bytes=used.ru_maxrss * 1024,
                cpu_seconds=round(used.ru_utime + used.ru_stime, 6),
                message="; ".join(filter(None, (self.message, *(each.error for each in self.recordings)))),
            ),
            self.recordings,
        )

    def drain(self) -> None:
        """Record what is still in the pipes, up to a bound: an unkillable process might still write."""
        for fd in list(self.outputs):
            for _ in range(DRAIN_BYTES // READ_BYTES):
                if not self.pump(fd):
                    break

    def status(self, phase: str, **more: Value) -> dict[str, Value]:
        return {
            "phase": phase,
            "boot_id": boot_id(),
            "supervisor_pid": os.getpid(),
            "supervisor_ticks": start_ticks(os.getpid()),
            "pid": self.pid,
            "ticks": self.ticks,
            "started_at": self.started_at,
            "unit": self.options.env.get("PACELINE_UNIT"),
            "monotonic_at": self.monotonic_at + self.frozen_seconds,
            "timeout": finite(self.options.timeout),
            "stall": finite(self.options.stall),
            "grace": self.options.grace,
            **more,
        }


def finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


# --- starting the agent --------------------------------------------------------------------------------------


def start_on_pipes(options: Options) -> tuple[int, dict[int, Recording]]:
    """Start the agent with the file `stdin` as input and two pipes as outputs, or one for both.

    Return its pid, and our ends of its channels.
    """
    stdin = os.open("stdin" if os.path.exists("stdin") else os.devnull, os.O_RDONLY)
    out_read, out_write = os.pipe()
    outputs = {out_read: Recording("stdout")}
    err_write = out_write
    if not options.merged:
        err_read, err_write = os.pipe()
        outputs[err_read] = Recording("stderr")
    pid = fork_agent(options, (stdin, out_write, err_write))
    for fd in {stdin, out_write, err_write}:
        os.close(fd)
    return pid, outputs


def start_in_terminal(options: Options) -> tuple[int, dict[int, Recording]]:
    """Start the agent in a terminal of its own, and record every byte written to it."""
    master, slave = os.openpty()
    size = b"".join(cells.to_bytes(2, sys.byteorder) for cells in options.terminal) + bytes(4)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    outputs = {master: Recording("screen")}
    pid = fork_agent(options, (slave, slave, slave))
    os.close(slave)
    return pid, outputs


def fork_agent(options: Options, channels: tuple[int, int, int]) -> int:
    """Fork and run the agent. Raise `NotStarted` with the reason if it cannot run."""
    report_read, report_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_agent(options, channels, parent, report_write)
    os.close(report_write)
    reason = b""
    while piece := os.read(report_read, 4096):  # ends at exec, which closes the other end
        reason += piece
    os.close(report_read)
    if reason:
        os.waitpid(pid, 0)
        raise NotStarted(reason.decode("utf-8", "replace"))
    return pid


def die_with(parent: int) -> None:
    """Let the kernel kill this process, a child, when its parent ends for any reason."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)  # the parent ended before the kernel was asked


def become_agent(options: Options, channels: tuple[int, int, int], parent: int, report_fd: int) -> None:
    """Turn this process, a child, into the agent, or send the reason to the parent."""
    doing = "cannot prepare the process"
    try:
        os.setsid()
        die_with(parent)
        for number, fd in enumerate(channels):
            os.dup2(fd, number)
        if options.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        doing = f"cannot work in {options.cwd!r}"
        os.chdir(options.cwd)
        if not os.access(".", os.W_OK):
            raise PermissionError(errno.EACCES, "the folder is not writable")
        reset_signals()
        doing = f"cannot run {options.argv[0]!r}"
        os.execvpe(options.argv[0], options.argv, options.env)
    except OSError as error:
        hint = " (is it installed, and on PATH?)" if error.errno == errno.ENOENT and "run" in doing else ""
        os.write(report_fd, f"{doing}: {error.strerror}{hint}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def reset_signals() -> None:
    """Handle no signal any more. An ignored one stays ignored after exec: Python and the shell's jobs ignore some."""
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)


def end_descendants(patience: float = LEFTOVER_SECONDS) -> None:
    """End all processes that were left behind. As their parents end, they become our children."""
    begun = time.monotonic()
    asked: set[int] = set()
    while has_children():
        quiet_for = time.monotonic() - begun
        if quiet_for > UNKILLABLE_SECONDS:
            return
        for pid in children_of(os.getpid()):
            if quiet_for > patience:
                signal_one(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                signal_one(pid, signal.SIGTERM)
        time.sleep(0.01)


def signal_one(pid: int, number: int) -> None:
    """Send a signal. A child of another user may be out of reach, which must not cost the session's result."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return


def has_children() -> bool:
    """Reap ended children. Return whether any are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def stop_request(grace: float) -> tuple[bool, float]:
    """Return whether the engine requested the stop, and the grace. Otherwise a person or a shutdown sent TERM."""
    try:
        return True, float(contents("stop"))
    except FileNotFoundError:
        return False, grace
    except ValueError:
        return True, grace


def main() -> None:
    """Take the lock, which is inherited locked, and run the session."""
    fcntl.flock(LOCK_FD, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.set_inheritable(LOCK_FD, False)
    os.closerange(LOCK_FD + 1, os.sysconf("SC_OPEN_MAX"))
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("cannot become the reaper of the agent's orphans")
    options = Options(sys.argv[1:])
    os.chdir(options.folder)
    Supervisor(options).run()


class RunningTime:
    """A monotonic clock without the time in which its process did not run.

    Its user must call it at least every `tick` seconds. Of a step of more than twice the tick only one tick counts.
    """

    def __init__(self, tick: float = TICK_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tick = tick
        self._monotonic = monotonic
        self._seen_at = monotonic()
        self.frozen_seconds = 0.0

    def __call__(self) -> float:
        now = self._monotonic()
        step, self._seen_at = now - self._seen_at, now
        if step > 2 * self._tick:
            self.frozen_seconds += step - self._tick
        return now - self.frozen_seconds
