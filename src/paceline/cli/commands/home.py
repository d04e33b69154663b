"""The home and what it serves.

Here: `up`, `token`, `gc`, `export` and `import`; `gateway` and `keys` for clients of its gateway; `hosts` for other
machines, and `worker` on such a machine.
"""

import contextlib
import functools
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast
from urllib.parse import quote

import typer

from paceline.agents.account import DEFAULT, Account
from paceline.agents.launch import sdk_gateway_variables
from paceline.agents.profile import filled
from paceline.api import tokens
from paceline.cli import output
from paceline.cli.output import argument, flag, option
from paceline.daemon import contact
from paceline.daemon.home import Home, open_empty_store, open_home, output_limits
from paceline.daemon.times import absolute, relative
from paceline.engine import command_log, commands, retention
from paceline.engine.commands import add_host, remove_host
from paceline.errors import InvalidInput, LaunchFailed, UnknownName
from paceline.executors.interface import IsNeeded
from paceline.executors.spool import ArchivePruner
from paceline.hosts.launchers.ssh import SshLauncher
from paceline.hosts.messages import known_hosts
from paceline.settings import LOCAL_HOST, HostSettings, Settings, load_settings
from paceline.settings.checks import did_you_mean
from paceline.settings.host_fields import HOST_FIELDS, make_host
from paceline.store.dump import export_store, import_store
from paceline.store.sql_store import SqlStore
from paceline.views.capacity import new_key_view, revoked_key_view
from paceline.views.gateway_calls import GatewaySpend, SpendSum, spend_fields, spend_since, spend_view
from paceline.views.status import HostView

# -- up -----------------------------------------------------------------------------------------------


def up_command(
    host: Annotated[
        str | None, option("ADDRESS", "Where to listen.", show_default="127.0.0.1, or as in the settings")
    ] = None,
    port: Annotated[
        int | None, option(None, "0 takes a free port.", min=0, max=65535, show_default="7433, or as in the settings")
    ] = None,
    insecure: Annotated[
        bool, flag("Serve other machines without TLS: the network can read the token.", "--insecure")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Run the daemon: engine, HTTP API, gateway and dashboard, until it is stopped.

    When it is ready it prints one address with a token in it: open it in a browser. Add campaigns with
    [bold]paceline add[/bold], on the dashboard or over HTTP. [bold]Ctrl-C[/bold] stops it; running sessions continue
    without it and are found again at the next start.

    Exit codes: 0 stopped; 2 something is wrong with the settings, the token file, the certificate or the address;
    75 another engine runs this home.
    """
    from paceline.daemon.daemon import run_daemon  # the other commands need not load a web server

    with open_home() as home:
        run_daemon(home, host=host, port=port, insecure=insecure, as_json=as_json)


# -- token --------------------------------------------------------------------------------------------

Rotate = Annotated[bool, flag("Make a new token; the present one is refused from now on.", "--rotate")]


def token_command(
    read_only: Annotated[bool, flag("The token that can only read.", "--read-only")] = False,
    url: Annotated[bool, flag("Print the address that opens the dashboard with it.", "--url")] = False,
    rotate: Rotate = False,
    is_list: Annotated[
        bool, flag("List the tokens of all homes that share the database; never their values.", "--list")
    ] = False,
    revoke: Annotated[str | None, option("NAME", "Accept the token of that name no longer.", "--revoke")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Print the token of the HTTP API; it is created if there is none. It allows everything that you can do here.

    The database knows only its hash. Engines that run notice a new, rotated or revoked token within two seconds.
    """
    if (rotate or read_only or url) + is_list + (revoke is not None) > 1:
        raise InvalidInput("--list and --revoke stand alone: give one of them, without --rotate, --read-only and --url")
    with open_home() as home:
        if is_list:
            _print_list(home, tokens.read_registry(home.store), as_json=as_json)
        elif revoke is not None:
            _revoke(home, revoke, as_json=as_json)
        else:
            _print_token(home, "read" if read_only else "full", rotate=rotate, url=url, as_json=as_json)


def _print_token(home: Home, rights: tokens.Rights, *, rotate: bool, url: bool, as_json: bool) -> None:
    token = (tokens.rotate_token if rotate else tokens.own_token_of)(home.store, home.path, rights)
    address = contact.dashboard_url(contact.daemon_url(home), token)
    value = {"token": token, "rights": rights, "url": address}
    output.print_answer(value, address if url else token, as_json=as_json)


def _print_list(home: Home, registry: tokens.TokenRegistry, *, as_json: bool) -> None:
    ours = tokens.home_name(home.path)
    entries = [
        {"name": each.name, "rights": each.rights, "since": each.since, "home": each.home, "is_own": each.home == ours}
        for each in registry.tokens
    ]
    if as_json:
        output.print_value({"tokens": entries})
        return
    if not entries:
        output.say("No tokens yet. `paceline up` and `paceline token` make those of this home.")
        return
    made = output.table("token", "rights", "since", "home")
    for each in registry.tokens:
        made.add_row(each.name, each.rights, absolute(each.since, home.zone), each.home)
    output.print_table(made)


def _revoke(home: Home, name: str, *, as_json: bool) -> None:
    found = tokens.revoke_token(home.store, name)
    if as_json:
        output.print_value({"ok": True, "name": found.name, "rights": found.rights})
        return
    output.say(f"revoked {found.name}: engines that run refuse it within two seconds")
    if found.home == tokens.home_name(home.path):
        option = " --read-only" if found.rights == "read" else ""
        output.say(f"It was the token of this home; `paceline token{option} --rotate` makes a new one.", style="yellow")


# -- gc -----------------------------------------------------------------------------------------------


def gc_command(
    is_dry_run: Annotated[bool, flag("Only show what would be removed.", "--dry-run")] = False,
    force: output.WithUncommitted = False,
    as_json: output.AsJson = False,
) -> None:
    """Remove prompts, output and events that are older than \\[retention] keeps, or too much for its max_disk.

    An engine does the same in small steps while it runs. The last attempt of a unit that is not done or cancelled is
    always kept, however old it is.

    Workspaces of done and cancelled units are removed too, and their branches once all their commits are merged.
    """
    with open_home() as home:
        pruner = ArchivePruner(home.spool(), is_dry_run=is_dry_run)
        removed = pruner.prune_all(output_limits(home.settings), _needed_attempts(home), time.time())
        events = 0 if is_dry_run else _remove_events(home)
        unneeded = retention.unneeded_workspaces(home.store, home.path)
        folders = retention.remove_workspaces(unneeded, force=force, dry_run=is_dry_run)
        left = retention.leave_workspaces(home.store, unneeded, force=force, dry_run=is_dry_run)
        if not is_dry_run:
            counts: dict[str, Any] = {"outputs": removed.attempts, "events": events, "workspaces": folders.removed}
            command_log.send(home.store, "gc", now=time.time(), **counts)
        if as_json:
            outputs = {"attempts": removed.attempts, "bytes": removed.bytes}
            shown = {"outputs": outputs, "events": None if is_dry_run else events, "workspaces": folders}
            shown["left_to_hosts"] = left
            output.print_value({"ok": True, "dry_run": is_dry_run, **shown})
            return
        what = f"the output of {output.counted(removed.attempts, 'attempt')} ({_size_text(removed.bytes)})"
        output.say(f"would remove {what}" if is_dry_run else f"removed {what} and {output.counted(events, 'event')}")
        _print_workspaces(folders, is_dry_run)
        if left:
            output.say(output.left_text(left))


def _print_workspaces(folders: retention.RemovedWorkspaces, is_dry_run: bool) -> None:
    if folders.removed or folders.branches:
        branches = f"{len(folders.branches)} merged {'branch' if len(folders.branches) == 1 else 'branches'}"
        what = f"{output.counted(folders.removed, 'workspace')} and {branches}"
        output.say(f"would remove {what}" if is_dry_run else f"removed {what}")
    for kept in folders.kept:
        output.say(f"kept {kept.path}: {kept.reason}")


def _remove_events(home: Home) -> int:
    """Remove old events in transactions of a bounded size, so that an engine can write in between."""
    keep = home.settings.retention.events
    removed = 0
    while keep is not None:
        count = command_log.prune_history(home.store, before=time.time() - keep, limit=retention.STEP_EVENTS)
        removed += count
        if count < retention.STEP_EVENTS:
            break
    return removed


def _needed_attempts(home: Home) -> IsNeeded:
    """Return what decides about an attempt. Those of unknown units are looked up in all units, once."""
    unfinished = functools.cache(lambda: retention.attempts_of_unfinished(home.store))

    def is_needed(attempt_id: str, unit_id: str | None) -> bool:
        if unit_id is None:
            return attempt_id in unfinished()
        return retention.is_last_of_unfinished(home.store, attempt_id, unit_id)

    return is_needed


def _size_text(size: int) -> str:
    """Return a size in the unit that people would use: 4.0 kB, 12.3 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


# -- export and import --------------------------------------------------------------------------------


def export_command(
    file: Annotated[str, argument("[FILE]", "Where to write; - is the standard output.")] = "-",
) -> None:
    """Write everything that the home has stored to FILE, as JSON lines.

    The home may be in use: FILE has one consistent state. It has prompts and answers, so only you can read it.
    [bold]paceline import FILE[/bold] fills another home with it, also one with another kind of database. Output and
    logs of sessions are files of the home, and not in FILE.
    """
    with open_home() as home, _written(file) as stream:
        rows = export_store(cast(SqlStore, home.store), stream.write)
    sys.stderr.write(f"exported {output.counted(rows, 'row')}\n")


@contextlib.contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """Give the stream to write. A file is there whole, or not at all; a pipe or device stays what it is."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    part = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            part = stream.name
            yield cast(BinaryIO, stream)
        os.replace(part, path)
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}; name another file") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def import_command(
    file: Annotated[str, argument("FILE", "What `paceline export` wrote; - is the standard input.")],
    as_json: output.AsJson = False,
) -> None:
    """Fill the home, whose database must be empty, with what [bold]paceline export[/bold] wrote.

    No engine may run here meanwhile. Everything is imported, or nothing. Run no engine in the old home again: it would
    do the same work twice.

    Exit codes: 0 imported; 2 the database is not empty, or the file is cut off or no export; 75 an engine runs here.
    """
    settings = load_settings(Path.cwd(), os.environ)
    with _read(file) as stream, open_empty_store(settings) as store:
        rows = import_store(store, stream)
    output.print_answer({"ok": True, "rows": rows}, f"imported {output.counted(rows, 'row')}", as_json=as_json)


@contextlib.contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield stream
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}; name a file that `paceline export` wrote") from error


# -- gateway ------------------------------------------------------------------------------------------

gateway_app = typer.Typer(no_args_is_help=True, help="Set up clients of the gateway, and see what calls cost.")


@gateway_app.command("env")
def env_command(
    name: Annotated[str, argument("ACCOUNT|POOL", "The account or the pool of keys to use.")],
    shell: Annotated[Literal["sh", "fish"], option(None, "The shell that reads the lines.", "--shell")] = "sh",
    key: Annotated[
        str | None, option("KEY", "A key of `paceline keys create`. Default: the token of this home.", "--key")
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Print the variables that point SDKs and CLIs at the gateway: `eval "$(paceline gateway env team)"`.

    For fish: `paceline gateway env team --shell fish | source`.
    """
    with open_home() as home:
        account = _first_account(home.settings, name)
        secret = tokens.own_token_of(home.store, home.path, "full") if key is None else _checked_key(home, key, name)
        url = f"{contact.daemon_url(home)}/gateway/{quote(name, safe='')}"
    variables = filled(sdk_gateway_variables(account.provider), url=url, token=secret)
    if as_json:
        output.print_value({"address": name, "provider": account.provider, "variables": variables})
        return
    for variable, value in variables.items():
        sys.stdout.write(export_line(variable, value, shell))


def _first_account(settings: Settings, name: str) -> Account:
    """Return the account behind the address, or the first one of a pool. Raises `InvalidInput` if there is none."""
    pool = settings.key_pools.get(name)
    wanted = name if pool is None else pool.accounts[0]
    found = [account for account in settings.accounts.values() if wanted in (account.name, account.id)]
    metered = [account for account in found if account.kind == "metered"]
    if metered:
        return metered[0]
    raise commands.unknown_address(settings, name)


def _checked_key(home: Home, text: str, name: str) -> str:
    """Return the key if a client may use it at that address. A text that is no key of `paceline keys` is refused."""
    digest = commands.digest_of_key(text.encode())
    found = next((each.key for each in commands.present_keys(home.store.client_keys()) if each.digest == digest), None)
    if found is None:
        raise InvalidInput("--key is no key of this gateway, or was revoked; `paceline keys create NAME` makes one")
    if found.pool not in (None, name):
        raise InvalidInput(f"the key {found.name} may use /gateway/{found.pool}/ only; name {found.pool}")
    return text


def export_line(variable: str, value: str, shell: Literal["sh", "fish"]) -> str:
    """Return the line with which a shell sets the variable for the programs that it starts."""
    if shell == "fish":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {variable} '{escaped}'\n"
    return f"export {variable}={shlex.quote(value)}\n"


@gateway_app.command("spend")
def spend_command(
    by: Annotated[str, option("FIELDS", "day, key, account, model, or several: key,model.", "--by")] = "key",
    since: Annotated[
        str | None, option("DAY", "The first day (UTC), or 7d for the last seven; 30d.", "--since")
    ] = None,
    key: Annotated[str | None, option("NAME", "Only the calls of this key.", "--key")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Show what calls of the gateway used and cost. The prices are those of campaigns."""
    fields, first = spend_fields(by), spend_since(since, time.time())
    with open_home() as home:
        if key is not None:
            _check_name(home, key)
        found = contact.live_spend(home, by, first, key) or spend_view(
            home.store.spend(since=first, key=key), first, fields
        )
    if as_json:
        output.print_value(found)
        return
    _print_spend(found)


def _check_name(home: Home, name: str) -> None:
    """Raise `UnknownName` unless a key of this name exists or has ever cost something."""
    keys = {each.key.name for each in home.store.client_keys()} | {row.key for row in home.store.spend() if row.key}
    if name not in keys:
        listed = f"the keys are: {', '.join(sorted(keys))}" if keys else "there are none yet"
        raise UnknownName(f"there is no key {name!r:.80}; {listed}")


def _print_spend(found: GatewaySpend) -> None:
    numbers = ("calls", "input", "output", "cache read", "cache write", "cost")
    made = output.table(*found.by, *numbers, right=numbers)
    for row in found.rows:
        made.add_row(*(output.one_line(getattr(row, field) or "-", 60) for field in found.by), *_cells(row))
    if found.by and len(found.rows) != 1:
        made.add_row(*("total" if place == 0 else "" for place, _ in enumerate(found.by)), *_cells(found.total))
    output.print_table(made)
    output.say(f"Since {found.since} (UTC).", style="dim")
    if found.total.unpriced:
        hint = "Their model has no price ([prices] in paceline.toml), or their answers did not say their tokens."
        output.say(f"Calls without a known cost: {found.total.unpriced}. {hint}", style="yellow")
    if found.total.estimated:
        hint = "Their answers did not say all of them."
        output.say(f"Calls with estimated tokens: {found.total.estimated}. {hint}", style="yellow")


def _cells(row: SpendSum) -> tuple[str, ...]:
    used = row.tokens
    counts = (output.count_text(each) for each in (used.input, used.output, used.cache_read, used.cache_write))
    return f"{row.requests:,}", *counts, output.spend_text(row)


# -- keys ---------------------------------------------------------------------------------------------

keys_app = typer.Typer(no_args_is_help=True, help="Keys of your own for clients of the gateway: create, list, revoke.")

KeyName = Annotated[str, argument("NAME", "The name of the key, such as that of a team.")]


@keys_app.command("create")
def create_key_command(
    context: typer.Context,
    name: KeyName,
    pool: Annotated[
        str | None, option("P", "The one pool or account that it may use: /gateway/P/. Default: all.")
    ] = None,
    models: Annotated[
        str | None, option("M,...", "The models that it may call, by name or pattern. Default: all.")
    ] = None,
    rpm: Annotated[int | None, option("N", "Calls that may start in a minute.")] = None,
    tpm: Annotated[int | None, option("N", "Tokens that may be used in a minute.")] = None,
    parallel: Annotated[int | None, option("N", "Calls at the same time.")] = None,
    priority_max: Annotated[int, option("N", "The highest priority that its calls may have among each other.")] = 0,
    weight: Annotated[
        float, option("N", "Its share beside other keys and campaigns. A campaign has 2^priority.")
    ] = 1.0,
    budget: Annotated[
        str | None, option("DOLLARS", "What its calls may cost: '$5/day', '$50/month' or '$100' in all.")
    ] = None,
    all_paths: Annotated[
        bool, flag("Let it also use files, batches and stored answers, of all teams of the account.", "--all-paths")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Create a key and print it. It is printed once: the database knows only its hash.

    Clients present it to the gateway in place of an API key. It is good for nothing else. A daemon that runs accepts
    it at once.
    """
    options = {field: context.params[field] for field in commands.KeyRequest.__struct_fields__}
    options["models"] = () if models is None else tuple(each.strip() for each in models.split(","))
    request = commands.KeyRequest(**options)
    with open_home() as home:
        now = time.time()
        record, text = commands.create_key(home.store, home.settings, request, now=now)
        output.print_answer(new_key_view(record, text), text, as_json=as_json)


@keys_app.command("list")
def list_keys_command(as_json: output.AsJson = False) -> None:
    """List the keys and what they allow; never their text."""
    with open_home() as home:
        now = time.time()
        found = contact.read_keys(home, now)
        if as_json:
            output.print_value(found)
            return
        if not found.keys:
            output.say("No keys yet. `paceline keys create NAME` makes one for a team.")
            return
        made = output.table("key", "address", "models", "limits", "weight", "budget", "since")
        for key in found.keys:
            since = absolute(key.created_at, home.zone)
            address = "all" if key.pool is None else f"/gateway/{key.pool}/"
            models = ", ".join(key.models) or ("all, and all paths" if key.all_paths else "all")
            budget = output.budget_text(key, now, home.zone)
            named = (("parallel", key.parallel), ("rpm", key.rpm), ("tpm", key.tpm), ("priority", key.priority_max))
            limits = ", ".join(f"{name} {number:,}" for name, number in named if number)
            made.add_row(key.name, address, models, limits, f"{key.weight:g}", budget, since)
        output.print_table(made)


@keys_app.command("revoke")
def revoke_key_command(name: KeyName, as_json: output.AsJson = False) -> None:
    """Accept a key no longer. Calls that run finish; those that wait are refused when their turn comes."""
    with open_home() as home:
        record = commands.revoke_key(home.store, name, now=time.time())
        text = f"revoked {record.name}: gateways refuse it within a second; calls that run finish"
        output.print_answer(revoked_key_view(record), text, as_json=as_json)


# -- hosts --------------------------------------------------------------------------------------------


hosts_app = typer.Typer()

Labels = Annotated[list[str] | None, option("LABEL", "What plans can ask for with `labels`. Repeatable.")]
HostName = Annotated[str, argument("NAME", "The name that you give the host.")]
PRESENCE_STYLES = {"joined": "green", "silent": "yellow", "leaving": "yellow", "lost": "bold red", "absent": "dim"}
GIGABYTE = 1_000_000_000


@hosts_app.callback(invoke_without_command=True)
def list_hosts_command(context: typer.Context, as_json: output.AsJson = False) -> None:
    """List other machines: their workers, sessions, logins, agent CLIs and free memory."""
    if context.invoked_subcommand is not None:
        return
    with open_home() as home:
        found, is_live = contact.read_hosts(home)
        if as_json:
            output.print_value({"hosts": found, "is_live": is_live})
            return
        if not found:
            output.say("No other machines. `paceline hosts add NAME --ssh user@host` adds one.")
            return
        _print_hosts(found, is_live=is_live)


_PLACES = "{name} {url} {token_file} {home} {labels}"


@hosts_app.command("add")
def add_host_command(
    context: typer.Context,
    name: HostName,
    ssh: Annotated[str | None, option("USER@HOST", "Start its worker with ssh.")] = None,
    command: Annotated[str | None, option("COMMAND", f"Start it with a command: {_PLACES}.")] = None,
    alive: Annotated[str | None, option("COMMAND", "With --command: ends with 0 while the worker is there.")] = None,
    stop: Annotated[str | None, option("COMMAND", "With --command: ends the worker.")] = None,
    slurm: Annotated[
        list[str] | None, option("KEY=VALUE", "Start it as a job of Slurm, with this option of sbatch.")
    ] = None,
    ray: Annotated[str | None, option("ADDRESS", "Start it on a Ray cluster, or `auto`.")] = None,
    ray_node: Annotated[
        str | None, option("NODE", "With --ray: the name, address or id of the node; else NAME.")
    ] = None,
    ray_python: Annotated[str | None, option("PATH", "With --ray: a Python here that has Ray.")] = None,
    connect: Annotated[
        str | None, option("URL", "How the host reaches this leader, such as https://leader:7433.")
    ] = None,
    max_sessions: Annotated[int | None, option("N", "Concurrent sessions there.")] = None,
    label: Labels = None,
    host_lease: Annotated[
        str | None, option("DURATION", "Its sessions end after this long without a leader; 10m.")
    ] = None,
    min_free_memory: Annotated[str | None, option("SIZE", "Start no session there with less free memory.")] = None,
    python: Annotated[
        str | None, option("PATH", "A Python there that has Paceline; with --ssh, none is installed.")
    ] = None,
    home: Annotated[str | None, option("PATH", "The folder of the worker on the host.", "--home")] = None,
    git_remote: Annotated[str | None, option("REMOTE", "A git remote that the host pushes branches to.")] = None,
    update: Annotated[bool, flag("Change a host that was added before.", "--update")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Add another machine. A running engine uses it at once.

    With [bold]--ssh[/bold] Paceline is installed there if it is missing or another version, and `paceline up` starts
    and keeps the worker. Without --ssh, --command, --slurm and --ray you start the worker yourself: the command is
    printed. The token of the host is good for its worker alone.
    """
    options = context.params | {"labels": label or None, "slurm": _slurm_options(slurm)}
    options |= {"command": _words(command), "alive": _words(alive), "stop": _words(stop)}
    host = make_host(name, {field: options[field] for field in HOST_FIELDS if options[field] is not None})
    with open_home() as opened:
        _add(opened, host, update=update, as_json=as_json)


@hosts_app.command("remove")
def remove_host_command(
    name: HostName,
    force: Annotated[bool, flag("Also while units run there.", "--force")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Forget another machine: stop its worker, and refuse its token.

    Units that run there must end first. With --force they are given back once the lease of the host has run out: until
    then their sessions may still run.
    """
    with open_home() as home:
        contact.refuse_configured(home, name)
        host = remove_host(home.store, name, force=force)
        revoked = tokens.revoke_host_tokens(home.store, home.path, name)
        problem = _stop_worker(home, host)
    if as_json:
        output.print_value({"ok": True, "name": name, "tokens_revoked": revoked, "problem": problem})
        return
    output.say(f"removed {name}: its token is refused from now on")
    if problem is not None:
        output.say(f"Its worker could not be stopped, and ends by itself: {problem}", style="yellow")


@hosts_app.command("token")
def host_token_command(
    name: HostName,
    rotate: Rotate = False,
    as_json: output.AsJson = False,
) -> None:
    """Print the token that the worker of a host needs. It is good for that worker and for nothing else."""
    with open_home() as home:
        known = {**known_hosts(home.store), **home.settings.hosts}
        if name not in known or name == LOCAL_HOST:
            hint = did_you_mean(name, known) or "; `paceline hosts add NAME` adds one"
            raise UnknownName(f"there is no host {name!r:.80}{hint}")
        made = (tokens.rotate_token if rotate else tokens.own_token_of)(home.store, home.path, "host", name)
    output.print_answer({"name": name, "token": made}, made, as_json=as_json)


def _add(home: Home, host: HostSettings, *, update: bool, as_json: bool) -> None:
    if host.name == LOCAL_HOST:
        raise InvalidInput(f"{LOCAL_HOST} is the leader's own machine: write [hosts.{LOCAL_HOST}] in paceline.toml")
    contact.refuse_configured(home, host.name)
    launcher = contact.host_launcher(home, host)
    has_installed = False
    if isinstance(launcher, SshLauncher):
        if not as_json:
            output.out().print(f"Connecting to {host.ssh} ...")
        has_installed = launcher.install()  # before anything is stored: a host that does not work is not added
    add_host(home.store, host, update=update)
    made = tokens.host_token_of(home.store, home.path, host.name)
    url = contact.worker_url(home, host)
    _, is_up = contact.read_hosts(home)  # an engine that runs a plan in the foreground starts no workers
    if as_json:
        extra = {"url": url, "token": made} if launcher is None else {"launcher": host.launcher}
        output.print_value({"ok": True, "name": host.name, "installed": has_installed, "is_up": is_up, **extra})
        return
    output.say(
        f"{'changed' if update else 'added'} {host.name}{', and installed Paceline there' if has_installed else ''}"
    )
    if launcher is None:
        _print_worker_command(host, url, made)
    elif is_up:
        output.say(f"Its worker is started now ({launcher.describe()}); `paceline hosts` shows it.")
    else:
        output.say(f"`paceline up` starts its worker ({launcher.describe()}).")


def _print_worker_command(host: HostSettings, url: str, made: str) -> None:
    """Print what a person runs on the host."""
    output.say("On that machine, install Paceline, and run:")
    output.say(f"  (umask 077; echo {made} > ~/paceline-token)")
    output.say(f"  paceline worker --connect {url} --token-file ~/paceline-token")
    if contact.is_only_local(url):
        output.say(
            "This leader listens on its own machine only. Reach it from there by a tunnel, ssh -L 7433:127.0.0.1:7433 "
            "LEADER, or serve it with TLS and add the host with --connect https://...",
            style="yellow",
        )


def _stop_worker(home: Home, host: HostSettings) -> str | None:
    """Stop the worker of a removed host, and return why that was not possible."""
    launcher = contact.host_launcher(home, host)
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
    made = output.table(
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
            output.one_line(", ".join(_login_text(host))),
            output.one_line(", ".join(each.agent for each in host.clis if each.version is not None)),
            "" if host.heard_at is None else relative(host.heard_at - now),
            style=PRESENCE_STYLES.get(host.presence, ""),
        )
    output.print_table(made)
    for host in found:
        if host.problem is not None:
            output.say(host.problem, style="yellow")
    if not is_live:
        output.say("No daemon answers: this is what was stored last. `paceline up` starts the workers.", style="yellow")


def _login_text(host: HostView) -> list[str]:
    """Return the accounts that sessions there can use, and those of the settings that they cannot."""
    usable = [each.account for each in host.logins if each.problem is None]
    others = [f"{each.account} (no)" for each in host.logins if each.problem is not None]
    return [*usable, *(each for each in others if f"/{DEFAULT}" not in each)]


# -- worker -------------------------------------------------------------------------------------------


def worker_command(
    connect: Annotated[
        list[str], option("URL", "Where the leader answers. Repeat it for the other engines of a fleet.")
    ],
    name: Annotated[str | None, option("NAME", "The name of this host.", show_default="as in the token")] = None,
    token_file: Annotated[
        Path | None, option("FILE", "The file with the token of this host.", show_default="PACELINE_TOKEN")
    ] = None,
    label: Labels = None,
    insecure: Annotated[
        bool, flag("Connect to other machines without TLS: the network can read the token.", "--insecure")
    ] = False,
) -> None:
    """Run sessions on this machine for a leader elsewhere, until it is stopped.

    The token comes from [bold]paceline hosts add NAME[/bold] on the leader. Sessions, logins and workspaces are those
    of this machine, under PACELINE_HOME. [bold]Ctrl-C[/bold] or SIGTERM ends the worker; its sessions continue, and the
    next worker of this home finds them. If no leader answers within the lease of the host, they are ended.

    Exit codes: 0 stopped; 2 the leader refuses this worker (the token, the name or the version), or an option is wrong;
    75 another worker or an engine uses this home.
    """
    from paceline.daemon.worker_process import run_worker, worker_request  # the other commands need not load it

    run_worker(worker_request(connect, name, token_file, label or (), insecure=insecure), os.environ)
