"""`doctor`: what is installed, which agent CLIs and accounts work, what is wrong and how to fix it.

With `--host`: what another machine has, compared with this one. A session should find the same on both.
"""

import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.text import Text

from paceline import errors
from paceline.agents import AgentProfile, agent_names, cli_facts, load_agent
from paceline.agents.account import Account, find_login, login_expiry, login_folder, vendor_of
from paceline.agents.launch import matches_any, metered_variables
from paceline.api.server import check_exposure, load_certificate
from paceline.cli.main import NOT_ALL_DONE
from paceline.cli.output import AsJson, one_line, option, out, print_value, unused_account
from paceline.daemon.contact import read_hosts
from paceline.daemon.home import Home, open_home
from paceline.daemon.times import named_local_zone
from paceline.executors.openclaw_child import GatewayDown, SpawnRefused, ToolGateway, gateway_of
from paceline.executors.spool import is_open_to_others
from paceline.hosts.messages import HostFacts, ProbedAccount
from paceline.hosts.worker.worker import FactsReader, printed_version
from paceline.settings import Settings, load_settings
from paceline.settings.preflight import campaign_advice, check_payers, hold_advice, troubles_here
from paceline.store import Campaign
from paceline.store.sqlite import recovery_advice
from paceline.views.status import HostView
from paceline.views.units import iter_units

MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "wrong": ("BAD ", "bold red")}


class Finding(msgspec.Struct, frozen=True, rename={"fix": "mend"}):
    """The result of one check, and how to fix it. The JSON key of `fix` is `mend`: programs rely on it."""

    what: str
    verdict: Literal["ok", "note", "wrong"]
    detail: str
    fix: str | None = None


def print_findings(findings: Sequence[Finding]) -> None:
    """Print each finding as a line, with its fix below, and how many there are to fix."""
    console = out()
    for finding in findings:
        mark, style = MARKS[finding.verdict]
        console.print(Text.assemble((mark, style), f" {finding.what + ' ':<16}", one_line(finding.detail, 300)))
        if finding.fix is not None:
            console.print(Text.assemble(" " * 21, ("fix: ", "bold"), one_line(finding.fix, 300)))
    wrong = sum(finding.verdict == "wrong" for finding in findings)
    end = "Nothing that was checked is wrong." if not wrong else f"{wrong} to fix."
    console.print(Text(end, style="bold green" if not wrong else "bold red"))


LEAST_FREE_BYTES = 1 << 30
"""A night of sessions writes less output than this."""
MOST_UNITS = 200
"""Units of a campaign whose folders are checked: more cost time, and most plans have a few folders."""
NIGHT_SECONDS = 24 * 3600.0
"""A login that ends within a day may end during the night."""
OLDEST_PYTHON = (3, 11)


def doctor_command(
    host: Annotated[str | None, option("NAME", "Compare another machine with this one instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: settings, agent CLIs, accounts, keys, disk. Prints how to fix what is wrong.

    With --host: what another machine has and this one has not, or the other way round.
    """
    if host is None:
        findings = list(_examine(os.environ, Path.cwd()))
    else:
        with open_home() as home:
            findings = examine_host(home, host)
    is_wrong = any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        print_value({"ok": not is_wrong, "findings": findings})
    else:
        print_findings(findings)
    raise typer.Exit(NOT_ALL_DONE if is_wrong else 0)


def _examine(environ: Mapping[str, str], start: Path) -> Iterator[Finding]:
    yield _python()
    yield Finding("sqlite", "ok", sqlite3.sqlite_version)
    yield _time_zone()
    try:
        settings = load_settings(start, environ)
    except errors.PacelineError as error:
        for line in str(error).splitlines():
            yield Finding("settings", "wrong", line, "correct the line; nothing runs until then")
        return
    yield _settings_file(settings)
    yield from _limits(settings)
    yield from _home(environ, start, settings)
    yield from _address(settings)
    yield from _agents(settings, environ)
    accounts = (*settings.accounts.values(), *_default_logins(settings, environ))
    yield from _accounts(accounts, environ)
    yield from _shared_logins(settings, environ)
    yield from examine_openclaw(settings, environ)
    yield from _readiness(accounts, environ, start, settings)
    yield from _payers(accounts, settings, environ, start)


def _time_zone() -> Finding:
    zone = named_local_zone()
    if zone is not None:
        return Finding("time zone", "ok", f"{zone.key} (for reset times that name none)")
    return Finding(
        "time zone",
        "note",
        "this machine names no time zone, so reset times without one are read as UTC",
        "set TZ, for example TZ=Europe/Paris",
    )


def _python() -> Finding:
    is_old = sys.version_info < OLDEST_PYTHON
    detail = f"{platform.python_version()}, paceline {version('paceline')}, {platform.system()} {platform.release()}"
    if not sys.platform.startswith("linux"):
        fix = "run it on Linux, or in a Linux container: the supervision of sessions needs Linux"
        return Finding("system", "wrong", detail, fix)
    return Finding("python", "wrong" if is_old else "ok", detail)


def _settings_file(settings: Settings) -> Finding:
    if settings.file is None:
        fix = "write paceline.toml here or in ~/.config/paceline/ once you need more than the defaults"
        return Finding("settings", "note", "no paceline.toml: the defaults are used", fix)
    return Finding("settings", "ok", str(settings.file))


def _limits(settings: Settings) -> Iterator[Finding]:
    """Report limits that bind nothing which is configured."""
    for scope in settings.limits:
        if (warning := unused_account(settings, scope)) is not None:
            fix = f"correct {scope!r} in [limits], or configure the account"
            yield Finding("limits", "note", warning, fix)


def _home(environ: Mapping[str, str], start: Path, settings: Settings) -> Iterator[Finding]:
    folders = (str(settings.home), str(settings.home / "spool"))
    were_open = [folder for folder in folders if is_open_to_others(folder)]
    try:
        with open_home(environ, start) as home:
            home.spool()
            leader = home.engine_leader()
            home.store.append_events([])  # an empty transaction: it fails if the store cannot be written
            home.offline_state(time.time())  # fails if what was learnt cannot be read
            home.store.check()
            loss, trouble = home.lost_work, home.trouble
    except errors.PacelineError as error:
        yield Finding("home", "wrong", str(error), _fix_of_home(error, settings))
        return
    runs = "leads this fleet" if leader is not None and leader.host else "runs here"
    engine = f"an engine {runs} ({leader})" if leader else "no engine runs here now"
    yield Finding("home", "ok", f"{settings.home}, {engine}")
    if loss is not None:
        what, _, fix = loss.partition(". Restore")
        yield Finding("home", "wrong", what, f"restore{fix}")
    for folder in were_open:
        yield _privacy(folder)
    free = shutil.disk_usage(settings.home).free
    detail = f"{free / (1 << 30):.1f} GB free"
    is_full = free < LEAST_FREE_BYTES
    yield Finding("disk", "wrong" if is_full else "ok", detail, HOME_FIXES[errors.StoreFull] if is_full else None)
    if trouble is not None and not is_full:
        yield Finding("engine", "wrong", f"nothing starts: {trouble}")


def _address(settings: Settings) -> Iterator[Finding]:
    """Report what would keep `paceline up` from serving the address of the settings."""
    try:
        check_exposure(settings.api.host, load_certificate(settings.api), insecure=False)
    except errors.InvalidSettings as error:
        fix = "correct tls_cert and tls_key in [api]; `paceline up` does not start until then"
        yield Finding("certificate", "wrong", str(error), fix)
    except errors.InvalidInput:
        detail = f"api.host = {settings.api.host!r} can be reached from other machines, without TLS"
        fix = "set tls_cert and tls_key in [api], or start it with `paceline up --insecure`"
        yield Finding("address", "note", detail, fix)


def _privacy(folder: str) -> Finding:
    """Report a folder that others could enter before the home was opened, which makes it private."""
    if is_open_to_others(folder):
        fix = "set PACELINE_HOME to a folder on a file system that keeps permissions"
        return Finding("home", "wrong", f"{folder} cannot be made private", fix)
    detail = f"{folder} was open to other users of this machine; it is private now"
    return Finding("home", "note", detail)


HOME_FIXES: dict[type[errors.PacelineError], str] = {
    errors.StoreUnreachable: "start the database server, or correct store.url",
    errors.StoreTooOld: "finish its work with the version that wrote it, or set PACELINE_HOME to a new home",
    errors.StoreTooNew: "update Paceline: pip install --upgrade paceline",
    errors.EngineBusy: "stop the older engine, then run doctor again",
    errors.StoreFull: "free some space, or set PACELINE_HOME to another disk",
    errors.StoreBusy: "run doctor again; if it stays so, end the program that keeps the database locked",
    errors.InvalidSnapshot: "update Paceline, restore a copy of the database, or run: paceline restore --unreadable",
}


def _fix_of_home(error: errors.PacelineError, settings: Settings) -> str:
    path = settings.sqlite_path
    if isinstance(error, errors.StoreDamaged | errors.StoreGone):
        return "restore a copy" if path is None else f"restore a copy; or {recovery_advice(str(path))}"
    for kind, fix in HOME_FIXES.items():
        if isinstance(error, kind):
            return fix
    if path is None:
        return "correct store.url, or what its user may do"
    return "make it writable for you, or set PACELINE_HOME to a folder of yours"


# -- agents and accounts -----------------------------------------------------------------------------


def _agents(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    subscriptions = {account.provider for account in settings.accounts.values() if account.kind == "subscription"}
    wanted = {name for name in agent_names() if _uses_login_of(load_agent(name), subscriptions)}
    found = 0
    for name in settings.agent_names():
        profile = settings.agent(name)
        if not profile.start:
            continue
        program = profile.start[0]
        path = shutil.which(program, path=environ.get("PATH"))
        if path is not None:
            found += 1
            yield _cli(name, _version_of(path, environ), path)
        elif name in wanted or name in settings.agents:
            fix = cli_facts.INSTALL.get(program, f"install {program} or put its folder on PATH")
            yield Finding(
                name,
                "wrong",
                f"{program} is not on PATH, and {'an account needs' if name in wanted else 'the settings name'} it",
                fix,
            )
    if not found:
        fix = cli_facts.INSTALL["claude"] + '; plans with agent = "command" run without one'
        yield Finding("agents", "note", "no agent CLI is on PATH", fix)


def _uses_login_of(profile: AgentProfile, providers: Collection[str]) -> bool:
    """Return whether the CLI logs in at one of the providers. The gateway of OpenClaw is a service, not a CLI."""
    return bool(profile.start) and "{" not in profile.start[0] and vendor_of(profile) in providers


def _cli(name: str, version_text: str, path: str) -> Finding:
    """Return the version of an agent CLI, with a note if it is older than what was tested, or may be."""
    detail = f"{version_text} ({path})"
    if name in cli_facts.TESTED_VERSIONS and cli_facts.parse_version(version_text) is None:
        fix = (
            f"compare `{path} --version` with {cli_facts.TESTED_VERSIONS[name][-1]}, the newest version that is tested"
        )
        return Finding(name, "note", f"{detail}: it may be older than what was tested", fix)
    if not (cli_facts.is_older_than_tested(name, version_text) or cli_facts.is_held_back_by_node(name, version_text)):
        return Finding(name, "ok", detail)
    newest = cli_facts.TESTED_VERSIONS[name][-1]
    fix = f"{cli_facts.INSTALL[name]}@{newest}"
    if name in cli_facts.NEWEST_NEEDS_NODE:
        node = cli_facts.NEWEST_NEEDS_NODE[name]
        fix += f" (with Node.js {node} or newer: on an older one npm installs an older version)"
    is_old = cli_facts.is_older_than_tested(name, version_text)
    why = "it is older than every tested version" if is_old else "a newer version is tested"
    return Finding(name, "note", f"{detail}: {why}, up to {newest}", fix)


def _version_of(path: str, environ: Mapping[str, str]) -> str:
    found = printed_version(path, environ)
    if found is None:
        return "does not answer --version"
    return "version unknown" if found == "unknown" else one_line(found, 60)


def _default_logins(settings: Settings, environ: Mapping[str, str]) -> list[Account]:
    """Return the default logins of the agents on this machine that no setting describes."""
    starts = ((name, settings.agent(name).start) for name in settings.agent_names())
    installed = [name for name, start in starts if start and shutil.which(start[0], path=environ.get("PATH"))]
    found = map(settings.login, installed)
    return list({account.id: account for account in found if account is not None and account.is_implicit}.values())


def _payers(
    accounts: Sequence[Account], settings: Settings, environ: Mapping[str, str], folder: Path
) -> Iterator[Finding]:
    """Check whether the CLI of each account, started in this folder, would bill a key."""
    agents = {vendor_of(settings.agent(name)): name for name in agent_names() if settings.agent(name).start}
    for account in accounts:
        agent = agents.get(account.provider)
        if agent is None or (account.key_env and not environ.get(account.key_env)):
            continue
        campaign = Campaign(name="doctor", agent=agent, accounts=() if account.is_implicit else (account.id,))
        found = check_payers(campaign, [str(folder)], settings, environ)
        for text in found.billing:
            fix = "remove it there; units that meet it are held"
            yield Finding(account.id, "note" if account.is_implicit else "wrong", text, fix)
        yield from (Finding(account.id, "note", text) for text in found.notes)


def _accounts(accounts: Sequence[Account], environ: Mapping[str, str]) -> Iterator[Finding]:
    troubles = {each.id: troubles_here(each, environ) for each in accounts}
    # Whether files and variables show that sessions of an account have a login or a key.
    shown = (each for each in accounts if each.kind == "metered" or find_login(each, environ) is not None)
    has_login = any(not troubles[each.id] for each in shown)
    for account in accounts:
        what = account.id
        for trouble in troubles[what]:
            detail, _, fix = trouble.partition("; ")
            is_unused = account.is_implicit and has_login  # a login that nothing may use needs no attention
            yield Finding(what, "note" if is_unused else "wrong", detail, fix or f"set {account.key_env}")
        if not troubles[what]:
            yield _usable(account, environ)
        if account.kind == "subscription":
            patterns = metered_variables(load_agent("command"), account)
            names = sorted(name for name in environ if matches_any(name, patterns))
            if names:
                detail = f"{', '.join(names)} is set here; sessions of {account.id} do not get it"
                yield Finding(what, "note", f"{detail}, so that they are never billed per token")


def _usable(account: Account, environ: Mapping[str, str]) -> Finding:
    """Return where the account has its login. Nobody has asked the provider, and for some CLIs nothing shows it."""
    kept = f", the last {account.reserve:.0%} of every window is reserved for you" if account.reserve else ""
    detail = f"{account.kind} of {account.provider}{kept}"
    if account.kind == "metered":
        return Finding(account.id, "ok", detail)
    login = find_login(account, environ)
    if login is None:
        fix = "start the CLI once by hand to see whether it is logged in"
        return Finding(account.id, "note", f"{detail}; its login was not checked", fix)
    return Finding(account.id, "ok", f"{detail}, its login is in {login.where} (it was not tried)")


def _shared_logins(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report accounts that are one login under two names: its limits would count twice."""
    by_login: dict[tuple[str, str], list[str]] = {}
    for account in settings.accounts.values():
        if account.kind == "subscription":
            folder = login_folder(account.provider, {**environ, **account.env})
            by_login.setdefault((account.provider, folder), []).append(account.id)
    for (_, folder), names in by_login.items():
        if len(names) > 1:
            detail = (
                f"{' and '.join(names)} are one login, in {folder}, so that its limits would count for each of them"
            )
            fix = "name a folder of its own for each in `env`, or remove all but one of them"
            yield Finding(names[0], "wrong", detail, fix)


# -- the night ---------------------------------------------------------------------------------------


def _readiness(
    accounts: Sequence[Account], environ: Mapping[str, str], start: Path, settings: Settings
) -> Iterator[Finding]:
    """Check held accounts and logins, and each stored campaign with open units on its accounts and in its folders."""
    now = time.time()
    try:
        with open_home(environ, start) as home:
            governor = home.offline_state(now).governor
            for account in accounts:
                for advice in hold_advice(account, governor.status(account.scope, now=now)):
                    yield Finding("accounts", "wrong", advice.text, advice.fix)
            yield from _expiring_logins(accounts, environ, now)
            for campaign in _open_campaigns(home):
                units = [unit.spec for unit in iter_units(home.store, campaign=campaign.name, most=MOST_UNITS)]
                for advice in campaign_advice(campaign, units, settings, environ):
                    yield Finding(campaign.name, "note", advice.text, advice.fix)
    except errors.PacelineError:
        return  # the check of the home has reported it


def _expiring_logins(accounts: Iterable[Account], environ: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Report logins and keys that end within a week. What may end during the night is wrong."""
    for account in accounts:
        expiry = login_expiry(account, environ)
        if expiry is not None and expiry.is_due(now):
            ends_tonight = expiry.at - now <= NIGHT_SECONDS
            text = expiry.text(account.id, now)
            yield Finding("accounts", "wrong" if ends_tonight else "note", text, expiry.fix)


def _open_campaigns(home: Home) -> list[Campaign]:
    counts = home.store.counts()
    return [
        campaign
        for campaign in home.store.campaigns()
        if campaign.state != "cancelled"
        and counts[campaign.name].todo
        and campaign.agent in home.settings.agent_names()
    ]


# -- gateways of OpenClaw -----------------------------------------------------------------------------

PROVIDER = "openclaw-gateway"
TOKEN = "OPENCLAW_GATEWAY_TOKEN"
_SECONDS = 20.0
"""For one answer. A gateway that starts may need longer, and is reported as down."""
_NO_TASK = "did not understand sessions_spawn"
"""How a gateway answers that offers the tool, and misses a task."""


def examine_openclaw(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the gateway of each account, and the usual one if its token is set."""
    accounts = [account for account in settings.accounts.values() if account.provider == PROVIDER]
    for account in accounts:
        own = {} if account.key_env is None else {TOKEN: environ.get(account.key_env, "")}
        yield _examine_gateway(account.id, gateway_of({**environ, **account.env, **own}))
    if not accounts and environ.get(TOKEN):
        yield _examine_gateway(PROVIDER, gateway_of(environ))


def _examine_gateway(what: str, gateway: ToolGateway) -> Finding:
    try:
        gateway.invoke("subagents", _SECONDS, action="list")
        gateway.invoke("sessions_spawn", _SECONDS)
    except GatewayDown as down:
        fix = "start it: openclaw gateway run"
        return Finding(what, "wrong", str(down), fix)
    except SpawnRefused as refused:
        if _NO_TASK not in str(refused):
            detail, _, fix = str(refused).rpartition(": ")
            return Finding(what, "wrong", detail, fix)
    return Finding(what, "ok", f"the gateway of OpenClaw at {gateway.url} accepts sub-agents")


# -- another machine ----------------------------------------------------------------------------------


SHOWN_FOLDERS = 4
"""Folders of a PATH that a line names: the rest is seen with --json of `paceline hosts`."""


def examine_host(home: Home, name: str) -> list[Finding]:
    """Compare a host with this machine. Raise `UnknownName` if there is no such host."""
    hosts, is_live = read_hosts(home)
    view = next((each for each in hosts if each.name == name), None)
    if view is None:
        known = ", ".join(each.name for each in hosts) or "none"
        raise errors.UnknownName(f"there is no host {name!r:.80}; known are: {known}")
    return list(host_findings(view, own_facts(home.settings, home.environ), is_live=is_live))


def own_facts(settings: Settings, environ: Mapping[str, str]) -> HostFacts:
    """Return what this machine has, as its worker would report it."""
    logins = [login for name in settings.agent_names() if (login := settings.login(name)) is not None]
    accounts = {account.id: account for account in (*settings.accounts.values(), *logins)}
    probed = (
        ProbedAccount(
            account=account.id,
            provider=account.provider,
            env=account.env,
            key_env=account.key_env,
            agents=tuple(name for name in settings.agent_names() if settings.login(name) == account),
            needs_login=not account.via_gateway,
        )
        for account in accounts.values()
    )
    programs = {name: profile.start[0] for name, profile in settings.agents.items() if profile.start}
    return FactsReader(settings.home, environ).read(probed, settings.agent_names(), programs)


def host_findings(view: HostView, own: HostFacts, *, is_live: bool) -> Iterator[Finding]:
    """Yield what differs there, what is missing there, and what is the same."""
    yield _presence(view, is_live=is_live)
    if view.version is None:
        return
    yield _compared_version(view, own)
    yield from _programs(view, own)
    yield from _logins(view, own)
    yield from _variables(view, own)


def _presence(view: HostView, *, is_live: bool) -> Finding:
    where = f"{view.hostname}, {view.home}" if view.hostname else "no worker has joined yet"
    if not is_live:
        fix = "start the daemon with `paceline up`"
        return Finding(view.name, "note", f"{where}; no daemon answers that could ask it", fix)
    if view.presence == "joined":
        size = f"{view.cpus} processors, {(view.memory or 0) / 1e9:.1f} GB of memory"
        return Finding(view.name, "ok", f"{where}; {size}")
    fix = view.problem or f"start its worker: `paceline hosts token {view.name}` prints the token that it needs"
    return Finding(view.name, "wrong", f"{where}; its worker is {view.presence}", fix)


def _compared_version(view: HostView, own: HostFacts) -> Finding:
    if view.version == own.version:
        return Finding("paceline", "ok", own.version)
    fix = "install the same version on both"
    return Finding("paceline", "note", f"{view.version} there, {own.version} here", fix)


def _programs(view: HostView, own: HostFacts) -> Iterator[Finding]:
    here = {cli.agent: cli.version for cli in own.clis}
    for cli in view.clis:
        mine = here.get(cli.agent)
        if cli.version is not None and mine in (None, cli.version):
            yield Finding(cli.agent, "ok", f"{cli.version} ({cli.path})")
        elif cli.version is not None:
            fix = "install the same version on both: agents behave differently in others"
            yield Finding(cli.agent, "note", f"{cli.version} there, {mine} here", fix)
        elif mine is not None:
            state = "does not answer --version there" if cli.path else "is not on the PATH of its worker"
            how = cli_facts.INSTALL.get(cli.agent, f"install {cli.agent}, or start the worker with another PATH")
            yield Finding(cli.agent, "wrong", f"it {state}; {mine} here", f"on {view.name}: {how}")


def _logins(view: HostView, own: HostFacts) -> Iterator[Finding]:
    here = {login.account: login.problem for login in own.logins}
    usable = [login.account for login in view.logins if login.problem is None]
    if usable:
        yield Finding("logins", "ok", ", ".join(usable))
    for login in view.logins:
        if login.problem is not None:
            detail, _, fix = login.problem.partition("; ")
            is_only_there = here.get(login.account, login.problem) is None
            yield Finding(
                login.account, "wrong" if is_only_there else "note", detail, f"on {view.name}: {fix}" if fix else None
            )


def _variables(view: HostView, own: HostFacts) -> Iterator[Finding]:
    same = []
    for name in sorted({*view.variables, *own.variables}):
        there, here = view.variables.get(name), own.variables.get(name)
        if there == here:
            same.append(name.removesuffix(" --version"))
        elif name == "PATH":
            yield from _path(there or "", here or "")
        else:
            detail = f"{there or 'not set'} there, {here or 'not set'} here"
            yield Finding(name.removesuffix(" --version"), "note", detail)
    if same:
        yield Finding("the same", "ok", ", ".join(same))


def _path(there: str, here: str) -> Iterator[Finding]:
    """Report folders that programs are found in here and not there: a login without a terminal often lacks some."""
    missing = [folder for folder in dict.fromkeys(here.split(os.pathsep)) if folder not in there.split(os.pathsep)]
    if missing:
        named = ", ".join(missing[:SHOWN_FOLDERS]) + (", ..." if len(missing) > SHOWN_FOLDERS else "")
        fix = "set PATH where the worker is started, if agents need what is there"
        yield Finding("PATH", "note", f"without {named}, which are in it here", fix)
