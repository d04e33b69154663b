"""Other machines, on which workers run sessions: `hosts`, and `worker` on such a machine."""

import os
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.agents.account import DEFAULT
from paceline.agents.launch import TOKEN_VARIABLE
from paceline.api.tokens import host_token_of, revoke_host_tokens, rotate_host_token
from paceline.cli.output import AsJson, one_line, out, print_table, print_value, say, table
from paceline.daemon.home import Home, open_home
from paceline.daemon.host_access import host_launcher, is_only_local, read_hosts, refuse_configured, worker_url
from paceline.daemon.times import relative
from paceline.engine.commands import add_host, remove_host
from paceline.errors import InvalidInput, LaunchFailed, UnknownName
from paceline.hosts.launchers.ssh import SshLauncher
from paceline.hosts.messages import known_hosts
from paceline.settings import LOCAL_HOST, HostSettings
from paceline.settings.documents import did_you_mean
from paceline.settings.host_fields import make_host
from paceline.views.hosts import HostView

# -- hosts --------------------------------------------------------------------------------------------


hosts_app = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name that you give the host.")]
STYLES = {"joined": "green", "silent": "yellow", "leaving": "yellow", "lost": "bold red", "absent": "dim"}
GIGABYTE = 1_000_000_000


@hosts_app.callback(invoke_without_command=True)
def list_command(context: typer.Context, as_json: AsJson = False) -> None:
    """List other machines: their workers, sessions, logins, agent CLIs and free memory."""
    if context.invoked_subcommand is not None:
        return
    with open_home() as home:
        found, is_live = read_hosts(home)
        if as_json:
            print_value({"hosts": found, "is_live": is_live})
            return
        if not found:
            say("No other machines. `paceline hosts add NAME --ssh user@host` adds one.")
            return
        _print_hosts(found, is_live=is_live)


def _text(metavar: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_text)


_PLACES = "{name} {url} {token_file} {home} {labels}"


@hosts_app.command("add")
def add_command(
    name: Name,
    ssh: Annotated[str | None, _text("USER@HOST", "Start its worker with ssh.")] = None,
    command: Annotated[str | None, _text("COMMAND", f"Start it with a command: {_PLACES}.")] = None,
    alive: Annotated[str | None, _text("COMMAND", "With --command: ends with 0 while the worker is there.")] = None,
    stop: Annotated[str | None, _text("COMMAND", "With --command: ends the worker.")] = None,
    slurm: Annotated[
        list[str] | None, _text("KEY=VALUE", "Start it as a job of Slurm, with this option of sbatch.")
    ] = None,
    ray: Annotated[str | None, _text("ADDRESS", "Start it on a Ray cluster, or `auto`.")] = None,
    ray_node: Annotated[
        str | None, _text("NODE", "With --ray: the name, address or id of the node; else NAME.")
    ] = None,
    ray_python: Annotated[str | None, _text("PATH", "With --ray: a Python here that has Ray.")] = None,
    connect: Annotated[
        str | None, _text("URL", "How the host reaches this leader, such as https://leader:7433.")
    ] = None,
    max_sessions: Annotated[int | None, _text("N", "Concurrent sessions there.")] = None,
    label: Annotated[list[str] | None, _text("LABEL", "What plans can ask for with `labels`. Repeatable.")] = None,
    host_lease: Annotated[
        str | None, _text("DURATION", "Its sessions end after this long without a leader; 10m.")
    ] = None,
    min_free_memory: Annotated[str | None, _text("SIZE", "Start no session there with less free memory.")] = None,
    python: Annotated[
        str | None, _text("PATH", "A Python there that has Paceline; with --ssh, none is installed.")
    ] = None,
    home: Annotated[str | None, _text("PATH", "The folder of the worker on the host.", "--home")] = None,
    git_remote: Annotated[str | None, _text("REMOTE", "A git remote that the host pushes branches to.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Change a host that was added before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add another machine. A running engine uses it at once.

    With [bold]--ssh[/bold] Paceline is installed there if it is missing or another version, and `paceline up` starts
    and keeps the worker. Without --ssh, --command, --slurm and --ray you start the worker yourself: the command is
    printed. The token of the host is good for its worker alone.
    """
    given = {
        "ssh": ssh,
        "ray": ray,
        "ray_node": ray_node,
        "ray_python": ray_python,
        "connect": connect,
        "python": python,
        "home": home,
        "git_remote": git_remote,
        "command": _words(command),
        "alive": _words(alive),
        "stop": _words(stop),
        "slurm": _slurm_options(slurm),
        "max_sessions": max_sessions,
        "labels": label or None,
        "host_lease": host_lease,
        "min_free_memory": min_free_memory,
    }
    host = make_host(name, {key: value for key, value in given.items() if value is not None})
    with open_home() as opened:
        _add(opened, host, update=update, as_json=as_json)


@hosts_app.command("remove")
def remove_command(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also while units run there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget another machine: stop its worker, and refuse its token.

    Units that run there must end first. With --force they are given back once the lease of the host has run out: until
    then their sessions may still run.
    """
    with open_home() as home:
        refuse_configured(home, name)
        host = remove_host(home.store, name, force=force)
        revoked = revoke_host_tokens(home.store, home.path, name)
        problem = _stop_worker(home, host)
    if as_json:
        print_value({"ok": True, "name": name, "tokens_revoked": revoked, "problem": problem})
        return
    say(f"removed {name}: its token is refused from now on")
    if problem is not None:
        say(f"Its worker could not be stopped, and ends by itself: {problem}", style="yellow")


@hosts_app.command("token")
def token_command(
    name: Name,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new token; the present one is refused from now on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the token that the worker of a host needs. It is good for that worker and for nothing else."""
    with open_home() as home:
        known = {**known_hosts(home.store), **home.settings.hosts}
        if name not in known or name == LOCAL_HOST:
            hint = did_you_mean(name, known) or "; `paceline hosts add NAME` adds one"
            raise UnknownName(f"there is no host {name!r:.80}{hint}")
        made = (rotate_host_token if rotate else host_token_of)(home.store, home.path, name)
    if as_json:
        print_value({"name": name, "token": made})
    else:
        say(made)


def _add(home: Home, host: HostSettings, *, update: bool, as_json: bool) -> None:
    if host.name == LOCAL_HOST:
        raise InvalidInput(f"{LOCAL_HOST} is the leader's own machine: write [hosts.{LOCAL_HOST}] in paceline.toml")
    refuse_configured(home, host.name)
    launcher = host_launcher(home, host)
    has_installed = False
    if isinstance(launcher, SshLauncher):
        if not as_json:
            out().print(f"Connecting to {host.ssh} ...")
        has_installed = launcher.install()  # before anything is stored: a host that does not work is not added
    add_host(home.store, host, update=update)
    made = host_token_of(home.store, home.path, host.name)
    url = worker_url(home, host)
    is_up = home.engine_leader() is not None
    if as_json:
        extra = {"url": url, "token": made} if launcher is None else {"launcher": host.launcher}
        print_value({"ok": True, "name": host.name, "installed": has_installed, "is_up": is_up, **extra})
        return
    say(f"{'changed' if update else 'added'} {host.name}{', and installed Paceline there' if has_installed else ''}")
    if launcher is None:
        _print_worker_command(host, url, made)
    elif is_up:
        say(f"Its worker is started now ({launcher.describe()}); `paceline hosts` shows it.")
    else:
        say(f"`paceline up` starts its worker ({launcher.describe()}).")


def _print_worker_command(host: HostSettings, url: str, made: str) -> None:
    """Print what a person runs on the host."""
    say("On that machine, install Paceline, and run:")
    say(f"  (umask 077; echo {made} > ~/paceline-token)")
    say(f"  paceline worker --connect {url} --token-file ~/paceline-token")
    if is_only_local(url):
        say(
            "This leader listens on its own machine only. Reach it from there by a tunnel, ssh -L 7433:127.0.0.1:7433 "
            "LEADER, or serve it with TLS and add the host with --connect https://...",
            style="yellow",
        )


def _stop_worker(home: Home, host: HostSettings) -> str | None:
    """Stop the worker of a removed host, and return why that was not possible."""
    launcher = host_launcher(home, host)
    try:
        if launcher is not None:
            launcher.stop()
    except LaunchFailed as error:
        return str(error)
    return None


def _words(command: str | None) -> list[str] | None:
    try:
        return None if command is None else shlex.split(command)
    except ValueError as error:
        raise InvalidInput(f"{command!r:.80} is not a command: {error}") from None


def _slurm_options(given: list[str] | None) -> dict[str, object] | None:
    if given is None:
        return None
    parts = [each.partition("=") for each in given]
    return {key: value if equals else True for key, equals, value in parts}


def _print_hosts(found: list[HostView], *, is_live: bool) -> None:
    made = table(
        "host", "state", "sessions", "free memory", "logins", "agents", "heard", right=("sessions", "free memory")
    )
    now = time.time()
    for host in found:
        most = "" if host.max_sessions is None else f"/{host.max_sessions}"
        made.add_row(
            host.name,
            host.presence,
            f"{host.sessions}{most}",
            "" if host.free_memory is None else f"{host.free_memory / GIGABYTE:.1f} GB",
            one_line(", ".join(_login_text(host))),
            one_line(", ".join(each.agent for each in host.clis if each.version is not None)),
            "" if host.heard_at is None else relative(host.heard_at - now),
            style=STYLES.get(host.presence, ""),
        )
    print_table(made)
    for host in found:
        if host.problem is not None:
            say(host.problem, style="yellow")
    if not is_live:
        say("No daemon runs: this is what was stored last. `paceline up` starts the workers.", style="yellow")


def _login_text(host: HostView) -> list[str]:
    """Return the accounts that sessions there can use, and those of the settings that they cannot."""
    usable = [each.account for each in host.logins if each.problem is None]
    others = [f"{each.account} (no)" for each in host.logins if each.problem is not None]
    return [*usable, *(each for each in others if f"/{DEFAULT}" not in each)]


# -- worker -------------------------------------------------------------------------------------------


def worker_command(
    connect: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Where the leader answers. Repeat it for the other engines of a fleet."),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of this host.", show_default="as in the token")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file with the token of this host.", show_default="PACELINE_TOKEN"),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="What plans can ask for with `labels`. Repeatable.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Connect to other machines without TLS: the network can read the token.")
    ] = False,
) -> None:
    """Run sessions on this machine for a leader elsewhere, until it is stopped.

    The token comes from [bold]paceline hosts add NAME[/bold] on the leader. Sessions, logins and workspaces are those
    of this machine, under PACELINE_HOME. [bold]Ctrl-C[/bold] or SIGTERM ends the worker; its sessions continue, and the
    next worker of this home finds them. If no leader answers within the lease of the host, they are ended.

    Exit codes: 0 stopped; 2 the leader refuses this worker (the token, the name or the version), or an option is wrong;
    75 another worker or an engine uses this home.
    """
    from paceline.daemon.worker_process import run_worker  # the other commands need not load it
    from paceline.hosts.worker.link import check_address, read_token
    from paceline.hosts.worker.worker import WorkerRequest
    from paceline.settings.environment import home_folder

    addresses = [check_address(url, insecure=insecure) for url in connect]
    token = read_token(*_token_text(token_file))
    if name is not None and name != token.host:
        raise InvalidInput(f"--name is {name!r}, but the token is one of {token.host!r}: use the token of {name!r}")
    home = home_folder(Path.cwd(), os.environ)
    labels = tuple(dict.fromkeys(label or ()))
    run_worker(WorkerRequest(home=home, addresses=addresses, token=token, labels=labels), os.environ)


def _token_text(file: Path | None) -> tuple[str, str]:
    """Return the token and where it comes from."""
    if file is None:
        if TOKEN_VARIABLE not in os.environ:
            raise InvalidInput(f"the token of this host is missing: pass --token-file FILE, or set {TOKEN_VARIABLE}")
        return os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE
    try:
        return file.read_text(), str(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the token cannot be read from {file}: {error}") from error
