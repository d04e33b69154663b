"""The fields of [hosts.NAME] and [machine]: how each is checked, and the rules over several of them.

`paceline hosts add` checks its options by the same rules. Never here: what a host does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from paceline.core.values.validation import LARGEST_LIMIT
from paceline.errors import InvalidInput
from paceline.settings import checks
from paceline.settings.checks import Check, PrivateValue, shown
from paceline.settings.model import LOCAL_HOST, HostSettings, Settings

LAUNCHERS: Final = ("ssh", "slurm", "ray", "command")
"""The ways to start a worker. A host has at most one of them."""
SHORTEST_HOST_LEASE: Final = 5.0
"""Seconds. The leader answers a worker every few seconds. A shorter lease would end sessions of a healthy host."""
OPTIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "alive": ("command",),
    "stop": ("command",),
    "python": ("ssh", "slurm", "ray"),
    "ray_python": ("ray",),
    "ray_node": ("ray",),
}
"""Fields that only hosts with one of these ways have."""
PLACEHOLDERS: Final = ("name", "url", "token_file", "home", "labels")
"""What a command of a host may contain in braces."""
_OF_LOCAL: Final = ("max_sessions", "labels", "min_free_memory")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SSH = re.compile(
    r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9._+-]*@)?(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::\d+)?"
)
_SLURM_KEY = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_OUR_SLURM_OPTIONS: Final = frozenset({"job-name", "dependency", "parsable", "array", "wrap", "chdir", "wait"})
"""Options by which the launcher finds its jobs, or which would start several."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_LARGEST_LOAD = 100_000


def _ssh(value: object) -> str:
    """Check what `ssh` connects to. It must not look like an option."""
    if not isinstance(value, str) or not _SSH.fullmatch(value):
        raise InvalidInput('must be what ssh connects to: "user@box1", "box1" or "ssh://user@box1:2222"')
    if not value.startswith("ssh://") and re.search(r":\d+$", value):
        raise InvalidInput(f'must have its port in a URL: "ssh://{value}"')
    return value


def _slurm(value: object) -> dict[str, str]:
    """Check the options of a job. A value is text, a number or true for an option without a value."""
    if not isinstance(value, Mapping):
        raise InvalidInput('must be a table of options for sbatch, such as { partition = "long", time = "8:00:00" }')
    options = {}
    for key, content in value.items():
        if not _SLURM_KEY.fullmatch(key):
            raise InvalidInput(f"{key!r:.60} is not an option of sbatch; write it without dashes before it")
        if isinstance(content, bool) and content:
            content = ""
        if isinstance(content, bool) or not isinstance(content, str | int) or re.search(r"[\0\n\r]", str(content)):
            raise InvalidInput(f"{key} must be text on one line, a number or true")
        option = key.replace("_", "-")
        if option in _OUR_SLURM_OPTIONS:
            raise InvalidInput(f"{key} is set by Paceline; remove it")
        if option == "nodes" and str(content) != "1":
            raise InvalidInput("nodes must be 1: a host is one node; write one [hosts.NAME] for each")
        options[key] = str(content)
    return options


_ray = checks.matching(
    r"auto|[A-Za-z0-9\[][^\s\x00-\x1f]*:\d+", '"auto" or the address of a Ray cluster, such as "10.0.0.5:6379"'
)
_ray_node = checks.matching(
    r"[A-Za-z0-9][A-Za-z0-9._:-]*", 'the name, the address or the id of a node of Ray, such as "gpu-3" or "10.0.0.7"'
)


def _command(value: object) -> tuple[str, ...]:
    words = checks.texts(value)
    if not words[0].strip():
        raise InvalidInput("must begin with a program")
    for name in (name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise InvalidInput(f"has {{{name}}}, which means nothing; there are {known}")
    return words


def _connect(value: object) -> str:
    try:
        return checks.web_url(value).rstrip("/")
    except InvalidInput:
        raise InvalidInput(
            'must be the address by which the host reaches the leader, such as "https://leader.example.com:7433"'
        ) from None


def _labels(value: object) -> tuple[str, ...]:
    labels = checks.text_list(value, 'must be a list of names, such as ["gpu"]', may_be_empty=True)
    for each in labels:
        if not _NAME.fullmatch(each):
            raise InvalidInput(f"has {shown(each)}: a label has letters, digits and . _ -")
    return tuple(dict.fromkeys(labels))


def _host_lease(value: object) -> float:
    seconds = checks.span(value)
    if seconds < SHORTEST_HOST_LEASE:
        raise InvalidInput(
            f'must be at least "{SHORTEST_HOST_LEASE:g}s": the leader answers a worker every few seconds'
        )
    return seconds


def _path_of(what: str) -> Check:
    return checks.matching(r"(?:/|~/)[^\x00-\x1f]*", f"{what} that begins with / or ~/")


def _git_remote(value: object) -> str:
    remote = checks.text(value)
    if remote.startswith("-") or re.search(r"[\x00-\x20]", remote):
        raise InvalidInput('must be a remote of git, such as "git@example.com:team/repository.git"')
    if checks.has_password(remote):
        raise PrivateValue("contains a password, which must not be in the file; use a key of ssh")
    return remote


_load = checks.number("a load above 0, without quotes, such as 4.0", lambda value: 0 < value <= _LARGEST_LOAD)
HOST_FIELDS: Final[Mapping[str, Check]] = {
    "ssh": _ssh,
    "slurm": _slurm,
    "ray": _ray,
    "command": _command,
    "alive": _command,
    "stop": _command,
    "connect": _connect,
    "python": _path_of("a Python with Paceline on the host"),
    "ray_python": _path_of("a Python with Ray"),
    "ray_node": _ray_node,
    "home": _path_of("a folder on the host"),
    "max_sessions": checks.whole_number(0, LARGEST_LIMIT),
    "labels": _labels,
    "host_lease": _host_lease,
    "min_free_memory": checks.disk_size,
    "git_remote": _git_remote,
}
MACHINE_FIELDS: Final[Mapping[str, Check]] = {"min_free_memory": checks.disk_size, "max_load": _load}


def host_mistakes(name: str, fields: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the name and with the checked fields together: the key, and the message."""
    if not _NAME.fullmatch(name):
        yield "", f"{name!r:.80} cannot name a host: use up to 63 letters, digits and . _ - after a letter or a digit"
        return
    if name == LOCAL_HOST:
        for key in fields:
            if key not in _OF_LOCAL:
                reason = "is the leader's own machine, which needs no worker"
                yield key, f"hosts.{LOCAL_HOST} {reason}; remove {key}, or give the host another name"
        return
    if fields.get("max_sessions") == 0:
        yield "max_sessions", f"hosts.{name}.max_sessions = 0: must be at least 1; only hosts.{LOCAL_HOST} may have 0"
    ways = [way for way in LAUNCHERS if way in fields]
    for way in ways[1:]:
        yield way, f"hosts.{name} has {ways[0]} and {way}: a worker is started in one way; remove one of them"
    for key, of in OPTIONS_OF.items():
        if key in fields and not set(of) & set(fields):
            yield key, f"hosts.{name}.{key} belongs to a host with {' or '.join(of)}; remove it"


def make_host(name: str, values: Mapping[str, object]) -> HostSettings:
    """Return the settings of a host from unchecked values. Raise `InvalidInput` with the first mistake."""
    fields = {}
    for key, value in values.items():
        try:
            fields[key] = HOST_FIELDS[key](value)
        except InvalidInput as error:
            raise InvalidInput(f"{key} = {shown(value)}: {error}") from None
    for _, message in host_mistakes(name, fields):
        raise InvalidInput(message)
    return msgspec.convert({"name": name, **fields}, HostSettings)


# -- hosts that a plan may run on ------------------------------------------------------------------


def names_host(patterns: Sequence[str], host: str) -> bool:
    """Return whether a plan lets its sessions run on the host: it names none, or this one."""
    return not patterns or any(fnmatchcase(host, pattern) for pattern in patterns)


def may_run_here(hosts: Sequence[str], labels: Sequence[str], settings: Settings | None) -> bool:
    """Return whether sessions of such a plan may start on the machine of the engine."""
    local = settings.hosts.get(LOCAL_HOST) if settings is not None else None
    have = local.labels if local is not None else ()
    is_closed = local is not None and local.max_sessions == 0
    return names_host(hosts, LOCAL_HOST) and not is_closed and all(label in have for label in labels)
