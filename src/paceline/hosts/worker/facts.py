"""What a host is and has: logins, agent CLIs, processors, memory, and variables that may differ between machines.

Reading it starts programs, so it takes seconds and runs in a thread. Never here: a secret.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from paceline.agents import agent_names, load_agent
from paceline.agents.account import DEFAULT, Account, account_id
from paceline.hosts.messages import HostCli, HostFacts, Login, ProbedAccount, memory
from paceline.leadership.election import this_machine
from paceline.settings.environment import expand_home, user_home
from paceline.settings.preflight import troubles_here

VERSION_SECONDS = 30.0
"""Some agent CLIs start a whole runtime to print their version. 10 s are too short for Gemini CLI on a busy machine."""
LONGEST_VERSION = 60
COMPARED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SHELL", "EDITOR", "XDG_CONFIG_HOME", "NODE_ENV")
"""What agents and their tools go by, and what often differs in a login without a terminal. None of it is secret."""
NO_PROGRAMS: Mapping[str, str] = {}
COMPARED_PROGRAMS = ("git", "node", "python3", "bash")
"""Programs that agents use. Their versions are compared as variables are."""


class FactsReader:
    """Reads the facts of one host. The version of a program is read again only when its file has changed."""

    def __init__(self, home: Path, environ: Mapping[str, str], *, labels: tuple[str, ...] = ()) -> None:
        self._environ = dict(environ)
        self._versions: dict[str, tuple[tuple[int, int], str | None]] = {}
        self.known = HostFacts(
            version=version("paceline"),
            machine=this_machine(),
            hostname=socket.gethostname(),
            home=str(home),
            user_home=str(user_home(environ)),
            cpus=len(os.sched_getaffinity(0)),
            memory=memory("MemTotal") or 0,
            labels=labels,
            variables={name: environ[name] for name in COMPARED_VARIABLES if name in environ},
        )
        """What was found so far. Logins and programs are there after the first `read`."""

    def read(
        self, accounts: Iterable[ProbedAccount], agents: Iterable[str], programs: Mapping[str, str] = NO_PROGRAMS
    ) -> HostFacts:
        """Return what the host has now. It takes as long as the programs take to print their versions.

        `programs` are those of agents that are not shipped.
        """
        versions = {f"{name} --version": self._version_of(name) for name in COMPARED_PROGRAMS}
        found = {name: self._environ[name] for name in COMPARED_VARIABLES if name in self._environ} | {
            name: text for name, text in versions.items() if text is not None
        }
        clis = tuple(self._cli(agent, programs.get(agent)) for agent in agents)
        there = {cli.agent for cli in clis if cli.path is not None}
        self.known = msgspec.structs.replace(
            self.known,
            logins=tuple(
                Login(account=each.account, problem=login_problem(each, self._environ))
                for each in accounts
                if not _is_default(each) or there.intersection(each.agents)
            ),
            clis=clis,
            variables=found,
        )
        return self.known

    def _cli(self, agent: str, program: str | None) -> HostCli:
        """Return the CLI of an agent, whose program is that of the shipped profile unless another one is given."""
        if program is None and agent in agent_names():
            program = next(iter(load_agent(agent).start), None)
        path = None if program is None else shutil.which(program, path=self._environ.get("PATH"))
        return HostCli(agent=agent, version=None if path is None else self._version_of(path), path=path)

    def _version_of(self, program: str) -> str | None:
        path = shutil.which(program, path=self._environ.get("PATH"))
        if path is None:
            return None
        try:
            found = os.stat(path)
        except OSError:
            return None
        mark = (found.st_mtime_ns, found.st_size)
        known = self._versions.get(path)
        if known is None or known[0] != mark or known[1] is None:
            known = self._versions[path] = (mark, printed_version(path, self._environ))
        return known[1]


def _is_default(probed: ProbedAccount) -> bool:
    """Return whether it is the default login of agent CLIs, which exists only where one of them is installed."""
    return probed.account == account_id(probed.provider, DEFAULT) and bool(probed.agents)


def printed_version(path: str, environ: Mapping[str, str]) -> str | None:
    """Return the first line that a program prints for `--version`, or `unknown`; None if it does not end."""
    try:
        done = subprocess.run(
            [path, "--version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = done.stdout.decode(errors="replace").strip().partition("\n")[0]
    return " ".join(first.split())[:LONGEST_VERSION] or "unknown"


def login_problem(probed: ProbedAccount, environ: Mapping[str, str]) -> str | None:
    """Return why sessions of the account could not use it on this host; None if they can, as far as files show."""
    if not probed.needs_login:
        return None
    account = Account(
        name=probed.account,
        provider=probed.provider,
        kind="subscription" if probed.key_env is None else "metered",
        env={name: expand_home(value, environ) for name, value in probed.env.items()},
        key_env=probed.key_env,
    )
    troubles = troubles_here(account, environ)
    return troubles[0] if troubles else None
