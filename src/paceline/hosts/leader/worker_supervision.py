"""Keeping the workers of other machines alive: the daemon that leads starts them, and holds their tunnels open.

Here: the launcher of a host, and when it is used. Only hosts with a launcher are supervised. Everything that waits for
another machine runs in a thread. Never here: how a worker is started (`hosts/launchers`), and what a host is used for.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from paceline.errors import LaunchFailed, PacelineError
from paceline.executors.spool import make_private
from paceline.hosts.jobs import in_daemon_thread
from paceline.hosts.launchers.command import CommandLauncher
from paceline.hosts.launchers.interface import WorkerLauncher, WorkerStart, worker_home
from paceline.hosts.launchers.ray_nodes import RayLauncher
from paceline.hosts.launchers.slurm import SlurmLauncher
from paceline.hosts.launchers.ssh import SshLauncher, SshTunnel
from paceline.hosts.messages import HostState
from paceline.settings import HostSettings

log = logging.getLogger("paceline.daemon")

TICK_SECONDS: Final = 1.0
"""How often the hosts are looked through: the time is added to the start of a worker."""
FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0
"""Between two tries on a host that does not work. A machine that boots is used within these minutes."""
JOIN_SECONDS: Final = 30.0
"""How long a worker that was started may take to join: Python there may be slow to start."""
RETURN_SECONDS: Final = 10.0
"""How long workers may take to join a new leader by themselves, before anybody connects to their hosts."""
PILOT_CHECK_SECONDS: Final = 30.0
"""How often an allocation is checked while its worker is there: it needs a successor before it ends."""
MOST_AT_ONCE: Final = 8
"""Hosts that are connected to at the same time: each needs a process of ssh here."""


class LeaderEndpoints(Protocol):
    """How this leader and its hosts reach each other."""

    def launcher(self, host: HostSettings) -> WorkerLauncher | None: ...

    def tunnel(self, host: HostSettings) -> SshTunnel | None:
        """Return a tunnel that is not open yet, if the worker of the host needs one."""

    def addresses(self, host: HostSettings) -> tuple[str, ...]:
        """Return the URLs by which the worker reaches this leader."""

    def token(self, name: str) -> str:
        """Return the token for the worker of the host. Called on the loop."""


class _Tended(msgspec.Struct):
    """A supervised host."""

    host: HostSettings
    tunnel: SshTunnel | None
    is_busy: bool = False
    tries: int = 0
    """Tries since its worker was there."""
    next_at: float = 0.0
    was_open: bool = False
    """Whether the last try has opened its tunnel."""
    started_at: float | None = None
    """When its worker was started by the last try, and has not joined since."""


class WorkerSupervision:
    """Supervises the workers of one leader. `problems` says of each host why its worker is not there."""

    def __init__(
        self,
        states: Callable[[], list[HostState]],
        problems: MutableMapping[str, str],
        endpoints: LeaderEndpoints,
        *,
        now: Callable[[], float],
    ) -> None:
        self._states = states
        self._problems = problems
        self._endpoints = endpoints
        self._now = now
        self._began = now()
        self._tended: dict[str, _Tended] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(self) -> None:
        """Supervise until it is cancelled. What goes wrong with one host, or with the store, does not end it."""
        try:
            while True:
                try:
                    self.look_through()
                except PacelineError as error:
                    log.debug("hosts are not looked through now: %s", error)
                except Exception:
                    log.exception("hosts could not be looked through; it is tried again")
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        """Close the tunnels. Workers stay, and find the next leader."""
        self._is_closed = True
        for tended in self._tended.values():
            if tended.tunnel is not None:
                tended.tunnel.close()
        self._tended.clear()

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def look_through(self) -> None:
        """Begin what each host needs now."""
        states = {state.name: state for state in self._states() if state.settings.launcher is not None}
        for name, tended in list(self._tended.items()):
            is_current = name in states and states[name].settings == tended.host
            if not is_current and not tended.is_busy:
                self._drop(name)
        for name, state in states.items():
            if name not in self._tended:
                self._tended[name] = _Tended(state.settings, self._endpoints.tunnel(state.settings))
            tended = self._tended[name]
            if state.presence == "joined":
                self._note_joined(name, tended)
            if not tended.is_busy and len(self._running) < MOST_AT_ONCE and self._needs_start(state, tended):
                tended.tries, tended.is_busy = tended.tries + 1, True
                task = asyncio.get_running_loop().create_task(self._try(state, tended))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    def _drop(self, name: str) -> None:
        """Forget a host that was removed, or whose settings have changed."""
        tended = self._tended.pop(name)
        self._problems.pop(name, None)
        if tended.tunnel is not None:
            tended.tunnel.close()

    def _note_joined(self, name: str, tended: _Tended) -> None:
        is_reachable = tended.tunnel is None or tended.tunnel.is_open
        if is_reachable and (tended.tries or name in self._problems):
            tended.tries, tended.next_at = 0, self._now() + _rest(tended.host)
            if self._problems.pop(name, None) is not None:
                log.info("host %s: its worker is there", name)
        tended.started_at = None

    def _needs_start(self, state: HostState, tended: _Tended) -> bool:
        now = self._now()
        is_cut_off = tended.tunnel is not None and not tended.tunnel.is_open
        if is_cut_off and tended.was_open:
            tended.was_open = False  # it broke: the first try is made at once
            return True
        if now < tended.next_at:
            return False
        if is_cut_off:
            return True
        if state.presence == "joined":
            return state.settings.slurm is not None
        return state.presence in ("absent", "lost") or now >= self._began + RETURN_SECONDS

    async def _try(self, state: HostState, tended: _Tended) -> None:
        """Start or check one host in a thread."""
        host, error = state.settings, None
        try:
            order = WorkerStart(
                name=host.name,
                connect=self._endpoints.addresses(host),
                token=self._endpoints.token(host.name),
                labels=host.labels,
                home=worker_home(host),
            )
            await in_daemon_thread(lambda: self._tend(state, tended, order), "supervision of a host")
        except Exception as raised:  # noqa: BLE001 - each is a problem that people see
            error = raised
        tended.is_busy = False
        self._finish(state, tended, error)

    def _tend(self, state: HostState, tended: _Tended, order: WorkerStart) -> None:
        """Open the tunnel, and start the worker unless it is there. Called in a thread."""
        if tended.tunnel is not None:
            tended.tunnel.open()
            if self._is_closed:  # meanwhile
                tended.tunnel.close()
        if self._is_closed:
            return
        if state.presence == "joined" and state.settings.slurm is None:
            return
        launcher = self._endpoints.launcher(state.settings)
        if launcher is None:
            return
        # Where nobody knows whether the worker is there, a silent host may only be cut off.
        if state.presence in ("absent", "lost") or launcher.is_alive() is not None:
            launcher.start(order)

    def _finish(self, state: HostState, tended: _Tended, error: Exception | None) -> None:
        now, name = self._now(), state.name
        tended.was_open = error is None
        wait = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(tended.tries - 1, 10))
        if error is None and state.presence == "joined":
            tended.tries, tended.next_at = 0, now + _rest(tended.host)
            return
        if error is None:
            tended.next_at = now + max(JOIN_SECONDS, wait)
            tended.started_at = tended.started_at or now
            if now - tended.started_at >= JOIN_SECONDS:
                self._note_problem(name, _not_joined(state, self._endpoints.addresses(state.settings)))
            return
        tended.next_at = now + wait
        if isinstance(error, PacelineError | OSError):
            text = str(error) if isinstance(error, LaunchFailed) else f"host {name}: {error}"
            self._note_problem(name, text)
        else:
            self._note_problem(name, f"host {name}: internal error; see paceline.log")
            log.error("host %s could not be looked through", name, exc_info=error)

    def _note_problem(self, name: str, text: str) -> None:
        """Show a problem, and log it once."""
        if self._problems.get(name) != text:
            self._problems[name] = text
            log.warning("%s", text)


def _rest(host: HostSettings) -> float:
    """Return how long a host whose worker is there needs nothing. A broken tunnel is opened at once."""
    return 0.0 if host.slurm is None else PILOT_CHECK_SECONDS


def _not_joined(state: HostState, addresses: tuple[str, ...]) -> str:
    host = state.settings
    log_file = Path(worker_home(host)) / "worker-output.log"
    return (
        f"host {state.name}: its worker runs, but has not joined; it must reach the leader at {' or '.join(addresses)} "
        f"(there, {log_file} may say more)"
    )


def launcher_of(host: HostSettings, folder: Path, environ: Mapping[str, str]) -> WorkerLauncher | None:
    """Return what starts the worker of the host; None if a person does it.

    `folder` is private to the host, in the home of the leader. `environ` is the leader's.
    """
    match host.launcher:
        case "ssh":
            return SshLauncher(host)
        case "slurm":
            return SlurmLauncher(host, environ)
        case "ray":
            return RayLauncher(host, environ)
        case "command":
            make_private(str(folder))
            return CommandLauncher(host, folder, environ)
        case _:
            return None
