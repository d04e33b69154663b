"""`doctor`: what is installed, which agent CLIs and accounts work, what is wrong and how to fix it."""

import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.agents import AgentProfile, agent_names, load_agent
from paceline.agents.default_login import login_folder, vendor_of
from paceline.agents.session_environment import metered_variables
from paceline.agents.versions import (
    NEWEST_NEEDS_NODE,
    TESTED_VERSIONS,
    is_held_back_by_node,
    is_older_than_tested,
    parse_version,
)
from paceline.agents.withheld_variables import matches_any
from paceline.api.tls import check_exposure, load_certificate
from paceline.cli.findings import Finding, print_findings
from paceline.cli.inputs import named_local_zone
from paceline.cli.openclaw_gateways import examine_openclaw
from paceline.cli.options import AsJson
from paceline.cli.output import NOT_ALL_DONE, one_line, print_value
from paceline.cli.wiring import Home, open_home
from paceline.errors import (
    EngineBusy,
    InvalidInput,
    InvalidSettings,
    InvalidSnapshot,
    PacelineError,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreGone,
    StoreTooNew,
    StoreUnreachable,
)
from paceline.executors.private_folder import is_open_to_others
from paceline.plans.advice import Advice
from paceline.plans.login_expiry import login_expiry
from paceline.plans.payer_check import check_payers
from paceline.plans.preflight import INSTALL, account_troubles, login_troubles
from paceline.plans.readiness import campaign_advice, hold_advice
from paceline.settings import AccountSettings, Settings, load_settings
from paceline.store import Campaign
from paceline.store.sqlite_file import recovery_advice
from paceline.views.units import iter_units
from paceline.worker.host_facts import printed_version

LEAST_FREE_BYTES = 1 << 30
"""A night of sessions writes less output than this."""
MOST_UNITS = 200
"""Units of a campaign whose folders are checked: more cost time, and most plans have a few folders."""
NIGHT_SECONDS = 24 * 3600.0
"""A login that ends within a day may end during the night."""
OLDEST_PYTHON = (3, 11)
AGENT_OF_PROVIDER = {
    "anthropic": "claude",
    "openai": "codex",
    "google": "gemini",
    "github": "copilot",
    "qwen": "qwen",
}


def command(
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare another machine with this one instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: settings, agent CLIs, accounts, keys, disk. Prints how to fix what is wrong.

    With --host: what another machine has and this one has not, or the other way round.
    """
    findings = list(_examine(os.environ, Path.cwd())) if host is None else _examine_host(host)
    is_wrong = any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        print_value({"ok": not is_wrong, "findings": findings})
    else:
        print_findings(findings)
    raise typer.Exit(NOT_ALL_DONE if is_wrong else 0)


def _examine_host(name: str) -> list[Finding]:
    from paceline.cli.host_comparison import examine_host  # the other commands need not load it

    with open_home() as home:
        return examine_host(home, name)


def _examine(environ: Mapping[str, str], start: Path) -> Iterator[Finding]:
    yield _python()
    yield Finding(what="sqlite", verdict="ok", detail=sqlite3.sqlite_version)
    yield _time_zone()
    try:
        settings = load_settings(start, environ)
    except PacelineError as error:
        for line in str(error).splitlines():
            yield Finding(
                what="settings", verdict="wrong", detail=line, fix="correct the line; nothing runs until then"
            )
        return
    yield _settings_file(settings)
    yield from _home(environ, start, settings)
    yield from _address(settings)
    yield from _agents(settings, environ)
    yield from _accounts(settings, environ)
    yield from examine_openclaw(settings, environ)
    yield from _readiness(environ, start, settings)
    yield from _payers(settings, environ, start)


def _time_zone() -> Finding:
    zone = named_local_zone()
    if zone is not None:
        return Finding(what="time zone", verdict="ok", detail=f"{zone.key} (for reset times that name none)")
    return Finding(
        what="time zone",
        verdict="note",
        detail="this machine names no time zone, so reset times without one are read as UTC",
        fix="set TZ, for example TZ=Europe/Paris",
    )


def _python() -> Finding:
    is_old = sys.version_info < OLDEST_PYTHON
    detail = f"{platform.python_version()}, paceline {version('paceline')}, {platform.system()} {platform.release()}"
    if not sys.platform.startswith("linux"):
        fix = "run it on Linux, or in a Linux container: the supervision of sessions needs Linux"
        return Finding(what="system", verdict="wrong", detail=detail, fix=fix)
    return Finding(what="python", verdict="wrong" if is_old else "ok", detail=detail)


def _settings_file(settings: Settings) -> Finding:
    if settings.file is None:
        fix = "write paceline.toml here or in ~/.config/paceline/ once you need more than the defaults"
        return Finding(what="settings", verdict="note", detail="no paceline.toml: the defaults are used", fix=fix)
    return Finding(what="settings", verdict="ok", detail=str(settings.file))


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
    except PacelineError as error:
        yield Finding(what="home", verdict="wrong", detail=str(error), fix=_fix_of_home(error, settings))
        return
    runs = "leads this fleet" if leader is not None and leader.host else "runs here"
    engine = f"an engine {runs} ({leader})" if leader else "no engine runs here now"
    yield Finding(what="home", verdict="ok", detail=f"{settings.home}, {engine}")
    for folder in were_open:
        yield _privacy(folder)
    free = shutil.disk_usage(settings.home).free
    detail = f"{free / (1 << 30):.1f} GB free"
    if free < LEAST_FREE_BYTES:
        yield Finding(
            what="disk", verdict="wrong", detail=detail, fix="free some space, or set PACELINE_HOME to another disk"
        )
    else:
        yield Finding(what="disk", verdict="ok", detail=detail)


def _address(settings: Settings) -> Iterator[Finding]:
    """Report what would keep `paceline up` from serving the address of the settings."""
    try:
        check_exposure(settings.api.host, load_certificate(settings.api), insecure=False)
    except InvalidSettings as error:
        fix = "correct tls_cert and tls_key in [api]; `paceline up` does not start until then"
        yield Finding(what="certificate", verdict="wrong", detail=str(error), fix=fix)
    except InvalidInput:
        detail = f"api.host = {settings.api.host!r} can be reached from other machines, without TLS"
        fix = "set tls_cert and tls_key in [api], or start it with `paceline up --insecure`"
        yield Finding(what="address", verdict="note", detail=detail, fix=fix)


def _privacy(folder: str) -> Finding:
    """Report a folder that others could enter before the home was opened, which makes it private."""
    if is_open_to_others(folder):
        fix = "set PACELINE_HOME to a folder on a file system that keeps permissions"
        return Finding(what="home", verdict="wrong", detail=f"{folder} cannot be made private", fix=fix)
    detail = f"{folder} was open to other users of this machine; it is private now"
    return Finding(what="home", verdict="note", detail=detail)


def _fix_of_home(error: PacelineError, settings: Settings) -> str:
    match error:
        case StoreDamaged() | StoreGone():
            path = settings.sqlite_path
            return "restore a copy" if path is None else f"restore a copy; or {recovery_advice(str(path))}"
        case StoreUnreachable():
            return "start the database server, or correct store.url"
        case StoreTooNew():
            return "update Paceline: pip install --upgrade paceline"
        case EngineBusy():
            return "stop the older engine, then run doctor again"
        case StoreFull():
            return "free some space, or set PACELINE_HOME to another disk"
        case StoreBusy():
            return "run doctor again; if it stays so, end the program that keeps the database locked"
        case InvalidSnapshot():
            return "update Paceline, restore a copy of the database, or run: paceline restore --unreadable"
        case _ if settings.sqlite_path is None:
            return "correct store.url, or what its user may do"
        case _:
            return "make it writable for you, or set PACELINE_HOME to a folder of yours"


# -- agents and accounts -----------------------------------------------------------------------------


def _agents(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    subscriptions = [account for account in settings.accounts.values() if account.kind == "subscription"]
    wanted = {AGENT_OF_PROVIDER.get(account.provider) for account in subscriptions}
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
            fix = INSTALL.get(program, f"install {program} or put its folder on PATH")
            yield Finding(
                what=name, verdict="wrong", detail=f"{program} is not on PATH, and an account needs it", fix=fix
            )
    if not found:
        fix = INSTALL["claude"] + '; plans with agent = "command" run without one'
        yield Finding(what="agents", verdict="note", detail="no agent CLI is on PATH", fix=fix)


def _cli(name: str, version_text: str, path: str) -> Finding:
    """Return the version of an agent CLI, with a note if it is older than what was tested, or may be."""
    detail = f"{version_text} ({path})"
    if name in TESTED_VERSIONS and parse_version(version_text) is None:
        fix = f"compare `{path} --version` with {TESTED_VERSIONS[name][-1]}, the newest version that is tested"
        return Finding(what=name, verdict="note", detail=f"{detail}: it may be older than what was tested", fix=fix)
    if not (is_older_than_tested(name, version_text) or is_held_back_by_node(name, version_text)):
        return Finding(what=name, verdict="ok", detail=detail)
    newest = TESTED_VERSIONS[name][-1]
    fix = f"{INSTALL[name]}@{newest}"
    if name in NEWEST_NEEDS_NODE:
        fix += f" (with Node.js {NEWEST_NEEDS_NODE[name]} or newer: on an older one npm installs an older version)"
    is_old = is_older_than_tested(name, version_text)
    why = "it is older than every tested version" if is_old else "a newer version is tested"
    return Finding(what=name, verdict="note", detail=f"{detail}: {why}, up to {newest}", fix=fix)


def _version_of(path: str, environ: Mapping[str, str]) -> str:
    found = printed_version(path, environ)
    return (
        "does not answer --version"
        if found is None
        else "version unknown"
        if found == "unknown"
        else one_line(found, 60)
    )


def _default_logins(settings: Settings, environ: Mapping[str, str]) -> list[AccountSettings]:
    """Return the default logins of the agents on this machine that no setting describes."""
    path = environ.get("PATH")
    found = [settings.login(name) for name in settings.agent_names() if _is_installed(settings.agent(name), path)]
    return list({account.id: account for account in found if account is not None and account.is_implicit}.values())


def _is_installed(profile: AgentProfile, path: str | None) -> bool:
    return bool(profile.start) and shutil.which(profile.start[0], path=path) is not None


def _payers(settings: Settings, environ: Mapping[str, str], folder: Path) -> Iterator[Finding]:
    """Check whether the CLI of each account, started in this folder, would bill a key."""
    agents = {vendor_of(settings.agent(name)): name for name in agent_names() if settings.agent(name).start}
    for account in (*settings.accounts.values(), *_default_logins(settings, environ)):
        agent = agents.get(account.provider)
        if agent is None or (account.key_env and not environ.get(account.key_env)):
            continue
        campaign = Campaign(name="doctor", agent=agent, accounts=() if account.is_implicit else (account.id,))
        found = check_payers(campaign, [str(folder)], settings, environ)
        for text in found.billing:
            fix = "remove it there; units that meet it are held"
            yield Finding(what=account.id, verdict="note" if account.is_implicit else "wrong", detail=text, fix=fix)
        yield from (Finding(what=account.id, verdict="note", detail=text) for text in found.notes)


def _accounts(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    for account in (*settings.accounts.values(), *_default_logins(settings, environ)):
        troubles = account_troubles(account, environ) + login_troubles(account, environ)
        what = account.id
        for trouble in troubles:
            detail, _, fix = trouble.partition("; ")
            yield Finding(what=what, verdict="wrong", detail=detail, fix=fix or f"set {account.key_env}")
        if not troubles:
            kept = f", the last {account.reserve:.0%} of every window is reserved for you" if account.reserve else ""
            login = f", the default login in {login_folder(account.provider, environ)}" if account.is_implicit else ""
            yield Finding(what=what, verdict="ok", detail=f"{account.kind} of {account.provider}{login}{kept}")
        if account.kind == "subscription":
            patterns = metered_variables(load_agent("command"), account.account)
            names = sorted(name for name in environ if matches_any(name, patterns))
            if names:
                detail = f"{', '.join(names)} is set here; sessions of {account.id} do not get it"
                yield Finding(what=what, verdict="note", detail=f"{detail}, so that they are never billed per token")
    yield from _shared_logins(settings, environ)


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
            yield Finding(what=names[0], verdict="wrong", detail=detail, fix=fix)


# -- the night ---------------------------------------------------------------------------------------


def _readiness(environ: Mapping[str, str], start: Path, settings: Settings) -> Iterator[Finding]:
    """Check held accounts and logins, and each stored campaign with open units on its accounts and in its folders."""
    now = time.time()
    accounts = (*settings.accounts.values(), *_default_logins(settings, environ))
    held: list[Advice] = []
    campaigns: list[tuple[str, Advice]] = []
    try:
        with open_home(environ, start) as home:
            governor = home.offline_state(now).governor
            for account in accounts:
                held += hold_advice(account, governor.status(account.scope, now=now))
            for campaign in _open_campaigns(home):
                units = [unit.spec for unit in iter_units(home.store, campaign=campaign.name, most=MOST_UNITS)]
                found = campaign_advice(campaign, units, settings, environ)
                campaigns += [(campaign.name, advice) for advice in found]
    except PacelineError:
        return  # the check of the home has reported it
    for advice in held:
        yield Finding(what="accounts", verdict="wrong", detail=advice.text, fix=advice.fix)
    yield from _expiring_logins(accounts, environ, now)
    for name, advice in campaigns:
        yield Finding(what=name, verdict="note", detail=advice.text, fix=advice.fix)


def _expiring_logins(accounts: Iterable[AccountSettings], environ: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Report logins and keys that end within a week. What may end during the night is wrong."""
    for account in accounts:
        expiry = login_expiry(account, environ)
        if expiry is not None and expiry.is_due(now):
            verdict: Literal["note", "wrong"] = "wrong" if expiry.at - now <= NIGHT_SECONDS else "note"
            yield Finding(what="accounts", verdict=verdict, detail=expiry.text(account.id, now), fix=expiry.fix)


def _open_campaigns(home: Home) -> list[Campaign]:
    counts = home.store.counts()
    return [
        campaign
        for campaign in home.store.campaigns()
        if campaign.state != "cancelled"
        and counts[campaign.name].todo
        and campaign.agent in home.settings.agent_names()
    ]
