"""What a worker reports of its host: what the host is and has, and what it has left."""

import msgspec


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """An account as one host has it. `problem` says why no session can use it there."""

    account: str
    problem: str | None = None


class HostCli(msgspec.Struct, frozen=True, kw_only=True):
    """An agent CLI as one host has it. Without a `version` it is missing or does not answer; one may be unknown."""

    agent: str
    version: str | None = None
    path: str | None = None


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has left now. `leaves_at` is when its allocation ends, where it has one."""

    free_memory: int | None = None
    """Bytes that programs can still get."""
    free_disk: int | None = None
    load: float | None = None
    leaves_at: float | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is and has. It is reported when a worker joins, and again when it changes."""

    version: str
    """The version of Paceline."""
    machine: str
    """What identifies the machine (`shared_leadership.this_machine`)."""
    hostname: str
    home: str
    """The folder of the worker: its spool, its workspaces, its copies of repositories."""
    user_home: str
    cpus: int
    memory: int
    labels: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()
    clis: tuple[HostCli, ...] = ()
    variables: dict[str, str] = {}
    """What may differ between machines and matters to agents: PATH, LANG, TZ and the like. Never a secret."""
