"""Agent profiles: their fields, and the profiles that are shipped.

Here: reading and checking the TOML files of the CLIs' folders, and filling in a command line. Never here: starting a
process, or the meaning of its output.
"""

import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from paceline.errors import InvalidInput

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_OWN_PROGRAM = {"python": sys.executable, "package": str(Path(__file__).resolve().parents[1])}
"""For a profile whose program is one of ours: the interpreter and the package of the machine that starts it."""
_MODEL_ARGUMENTS = "{model_arguments}"
"""The argument in `start` and `resume` that the model's flags replace."""


class PermissionFlags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments and variables that give an agent one level of permissions. `{cwd}` is the working directory."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}


NO_FLAGS = PermissionFlags()


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent CLI. Command lines contain `{prompt}`, `{session_id}` and `{model_arguments}`."""

    name: str
    provider: str
    """The name by which `detect` and `StreamReader` know its output."""
    stream: Literal["json", "text", "screen"]
    """Its output: one JSON event per line, text, or a terminal screen."""
    start: tuple[str, ...]
    """The command line of a new conversation; empty if the plan brings its own."""
    resume: tuple[str, ...] = ()
    """The command line that resumes `{session_id}`; empty if the CLI cannot resume."""
    start_by_stdin: tuple[str, ...] = ()
    """`start` with the prompt on standard input, which is preferred; empty if the CLI does not read it there."""
    resume_by_stdin: tuple[str, ...] = ()
    """`resume` with the prompt on standard input."""
    resume_prompt: str = "Continue from where you left off."
    """The prompt of a resumed conversation. It does not repeat the task, which would then be done twice."""
    model: tuple[str, ...] = ()
    """The arguments that choose `{model}`."""
    permissions: dict[Literal["default", "read", "edit", "full"], PermissionFlags] = {}
    """What each level of a campaign's `permissions` becomes; `default` is for a campaign that names none."""
    environment: dict[str, str] = {}
    """Set for every session: fail fast and leave waiting to Paceline, no telemetry, no updates."""
    gateway_arguments: tuple[str, ...] = ()
    """Added to the model's arguments if calls go through the gateway at `{url}`."""
    gateway_environment: dict[str, str] = {}
    """Set if calls go through the gateway at `{url}`, with `{token}` as the key."""
    metered_variables: tuple[str, ...] = ()
    """Names and patterns of variables that make the CLI bill a key. Sessions do not inherit them."""
    key_variables: dict[str, str] = {}
    """The variable in which the CLI reads the key of a metered account, by provider; `*` is any other provider."""
    login_variables: tuple[str, ...] = ()
    """Variables that hold a login of the CLI. Sessions inherit them unless their account has a login of its own."""

    @property
    def can_resume(self) -> bool:
        return bool(self.resume)

    @property
    def can_use_gateway(self) -> bool:
        return bool(self.gateway_environment)

    @property
    def takes_stdin(self) -> bool:
        return bool(self.start_by_stdin)

    def permission_flags(self, level: str | None) -> PermissionFlags:
        """Return the flags of a level of permissions, or those of a campaign that names none."""
        for known, flags in self.permissions.items():
            if known == ("default" if level is None else level):
                return flags
        if level is not None:
            raise InvalidInput(f"agent {self.name!r} has no flags for permissions = {level!r}")
        return NO_FLAGS

    def command_line(
        self,
        prompt: str | None,
        *,
        model: str | None = None,
        conversation_id: str | None = None,
        gateway_url: str | None = None,
        more: Sequence[str] = (),
    ) -> list[str]:
        """Return the arguments that start a conversation, or resume the given one. `more` follow those of the model.

        Without a prompt, return those for a prompt on standard input.
        """
        if conversation_id is not None and not self.can_resume:
            raise InvalidInput(f"agent {self.name!r} cannot resume a conversation")
        if prompt is None and not self.takes_stdin:
            raise InvalidInput(f"agent {self.name!r} cannot read its prompt from standard input")
        model_arguments = [] if model is None else [_fill(part, model=model) for part in self.model]
        if gateway_url is not None:
            model_arguments += [_fill(part, url=gateway_url) for part in self.gateway_arguments]
        model_arguments += more
        line: list[str] = []
        for part in self._template(by_stdin=prompt is None, resumes=conversation_id is not None):
            if part == _MODEL_ARGUMENTS:
                line += model_arguments
            else:
                line.append(_fill(part, prompt=prompt or "", session_id=conversation_id or "", **_OWN_PROGRAM))
        return line

    def _template(self, *, by_stdin: bool, resumes: bool) -> tuple[str, ...]:
        if by_stdin:
            return self.resume_by_stdin if resumes else self.start_by_stdin
        return self.resume if resumes else self.start


def filled(variables: dict[str, str], **values: str) -> dict[str, str]:
    """Return the variables with their placeholders filled in."""
    return {name: _fill(content, **values) for name, content in variables.items()}


def filled_arguments(arguments: Sequence[str], **values: str) -> list[str]:
    """Return the arguments with their placeholders filled in."""
    return [_fill(part, **values) for part in arguments]


def _fill(part: str, **values: str) -> str:
    """Replace placeholders by values. Placeholders inside a value are not replaced."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], part)


@functools.cache
def _profile_files() -> dict[str, Path]:
    return {file.stem: file for file in sorted(Path(__file__).parent.glob("*/*.toml"), key=lambda file: file.stem)}


def agent_names() -> tuple[str, ...]:
    """Return the names of the shipped agents."""
    return tuple(_profile_files())


@functools.cache
def load_agent(name: str) -> AgentProfile:
    """Return the shipped profile of this name."""
    file = _profile_files().get(name)
    if file is None:
        raise InvalidInput(f"unknown agent {name!r}; known are {', '.join(agent_names())}")
    return parse_agent(file.read_text("utf-8"))


def parse_agent(text: str) -> AgentProfile:
    """Parse a profile from TOML. Raise `InvalidInput` for unknown keys, wrong types and unknown placeholders."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not an agent profile: {error}") from error
    return check_agent(values)


def check_agent(values: dict[str, object]) -> AgentProfile:
    """Check a profile from a table, such as one of the user's own in paceline.toml."""
    try:
        profile = msgspec.convert(values, AgentProfile)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not an agent profile: {error}") from error
    everywhere = {"model_arguments", *_OWN_PROGRAM}
    checks: list[tuple[str, Iterable[str], set[str]]] = [
        ("start", profile.start, {"prompt", *everywhere}),
        ("resume", profile.resume, {"prompt", "session_id", *everywhere}),
        ("start_by_stdin", profile.start_by_stdin, everywhere),
        ("resume_by_stdin", profile.resume_by_stdin, {"session_id", *everywhere}),
        ("model", profile.model, {"model"}),
        ("gateway_arguments", profile.gateway_arguments, {"url"}),
        ("gateway_environment", profile.gateway_environment.values(), {"url", "token"}),
    ]
    for level, flags in profile.permissions.items():
        checks.append((f"permissions.{level}", (*flags.arguments, *flags.environment.values()), {"cwd"}))
    for key, parts, allowed in checks:
        found = {name for part in parts for name in _PLACEHOLDER.findall(part)}
        if not found <= allowed:
            raise InvalidInput(f"not an agent profile: `{key}` has unknown placeholders {sorted(found - allowed)}")
    if profile.gateway_arguments and not profile.can_use_gateway:
        raise InvalidInput("not an agent profile: `gateway_arguments` need a `gateway_environment` with the {token}")
    for line in (profile.resume, profile.resume_by_stdin):
        if line and not any("{session_id}" in part for part in line):
            raise InvalidInput("not an agent profile: `resume` names no {session_id}")
    if profile.takes_stdin and bool(profile.resume_by_stdin) != profile.can_resume:
        raise InvalidInput("not an agent profile: `resume_by_stdin` and `resume` go together")
    return profile
