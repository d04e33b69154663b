"""The shape of an agent profile, and the profiles that are shipped.

Here: reading and checking the TOML files of this folder, and filling in a command line. Never here: starting
a process, or the meaning of what it prints.
"""

import functools
import re
import tomllib
from importlib import resources
from typing import Literal

import msgspec

from paceline.errors import InvalidInput

_SUFFIX = ".toml"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_MODEL_ARGUMENTS = "{model_arguments}"
"""Stands in `start` and `resume` where the model's flag goes, as an argument of its own."""


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent CLI. Command lines hold `{prompt}`, `{session_id}` and `{model_arguments}`."""

    name: str
    provider: str
    """The name by which `detect` and `StreamReader` know its output."""
    stream: Literal["json", "text", "screen"]
    """How it speaks: one JSON event per line, text, or only to a terminal."""
    start: tuple[str, ...]
    """The command line of a fresh conversation; empty where the plan brings its own."""
    resume: tuple[str, ...] = ()
    """The command line that goes on with `{session_id}`; empty where the CLI cannot."""
    start_by_stdin: tuple[str, ...] = ()
    """`start` with the prompt on standard input, for prompts that cannot be an argument; empty where the CLI cannot."""
    resume_by_stdin: tuple[str, ...] = ()
    """The same for `resume`."""
    resume_prompt: str = "Continue from where you left off."
    """What a resumed conversation is told: the task stands in it already, and told twice it is done twice."""
    model: tuple[str, ...] = ()
    """The arguments that choose `{model}`."""
    environment: dict[str, str] = {}
    """Set for every run: fail fast and leave the waiting to Paceline, no telemetry, no updates."""
    gateway_arguments: tuple[str, ...] = ()
    """Go beside those of the model where its calls are to go through the gateway at `{url}`."""
    gateway_environment: dict[str, str] = {}
    """Set where its calls are to go through the gateway at `{url}`, with `{token}` for a key."""
    metered_variables: tuple[str, ...] = ()
    """Variables that make the CLI bill a key instead of the subscription; removed for a subscription account."""

    @property
    def can_resume(self) -> bool:
        """Whether a conversation can be continued by its session id."""
        return bool(self.resume)

    @property
    def can_use_gateway(self) -> bool:
        """Whether it can be told to make its calls somewhere else than at the provider."""
        return bool(self.gateway_environment)

    @property
    def takes_stdin(self) -> bool:
        """Whether the prompt can come by standard input."""
        return bool(self.start_by_stdin)

    def command_line(
        self,
        prompt: str | None,
        *,
        model: str | None = None,
        conversation_id: str | None = None,
        gateway_url: str | None = None,
    ) -> list[str]:
        """The arguments to run: fresh, or with a session id going on with that conversation.

        Without a prompt: those for a prompt that comes by standard input.
        """
        if conversation_id is not None and not self.can_resume:
            raise InvalidInput(f"agent {self.name!r} cannot resume a conversation")
        if prompt is None and not self.takes_stdin:
            raise InvalidInput(f"agent {self.name!r} cannot read its prompt from standard input")
        model_arguments = [] if model is None else [_fill(part, model=model) for part in self.model]
        if gateway_url is not None:
            model_arguments += [_fill(part, url=gateway_url) for part in self.gateway_arguments]
        line: list[str] = []
        for part in self._template(by_stdin=prompt is None, resumes=conversation_id is not None):
            if part == _MODEL_ARGUMENTS:
                line += model_arguments
            else:
                line.append(_fill(part, prompt=prompt or "", session_id=conversation_id or ""))
        return line

    def _template(self, *, by_stdin: bool, resumes: bool) -> tuple[str, ...]:
        if by_stdin:
            return self.resume_by_stdin if resumes else self.start_by_stdin
        return self.resume if resumes else self.start


def filled(variables: dict[str, str], **values: str) -> dict[str, str]:
    """Variables with their placeholders filled in."""
    return {name: _fill(content, **values) for name, content in variables.items()}


def _fill(part: str, **values: str) -> str:
    """Puts values in for placeholders; what a value itself contains is never filled in again."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], part)


def agent_names() -> list[str]:
    """The agents that are shipped."""
    files = resources.files(__package__).iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


@functools.cache
def load_agent(name: str) -> AgentProfile:
    """The shipped profile of this name."""
    known = agent_names()
    if name not in known:
        raise InvalidInput(f"unknown agent {name!r}; known are {', '.join(known)}")
    return parse_agent(resources.files(__package__).joinpath(name + _SUFFIX).read_text("utf-8"))


def parse_agent(text: str) -> AgentProfile:
    """A profile from TOML. Unknown keys, wrong types and unknown placeholders are refused."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not an agent profile: {error}") from error
    return check_agent(values)


def check_agent(values: dict[str, object]) -> AgentProfile:
    """The same from a table that was read already, such as one of the user's own in paceline.toml."""
    try:
        profile = msgspec.convert(values, AgentProfile)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not an agent profile: {error}") from error
    _check_placeholders("start", profile.start, {"prompt", "model_arguments"})
    _check_placeholders("resume", profile.resume, {"prompt", "model_arguments", "session_id"})
    _check_placeholders("start_by_stdin", profile.start_by_stdin, {"model_arguments"})
    _check_placeholders("resume_by_stdin", profile.resume_by_stdin, {"model_arguments", "session_id"})
    _check_placeholders("model", profile.model, {"model"})
    _check_placeholders("gateway_arguments", profile.gateway_arguments, {"url"})
    _check_placeholders("gateway_environment", tuple(profile.gateway_environment.values()), {"url", "token"})
    if profile.gateway_arguments and not profile.can_use_gateway:
        raise InvalidInput("not an agent profile: `gateway_arguments` need a `gateway_environment` with the {token}")
    for line in (profile.resume, profile.resume_by_stdin):
        if line and not any("{session_id}" in part for part in line):
            raise InvalidInput("not an agent profile: `resume` names no {session_id}")
    if profile.takes_stdin and bool(profile.resume_by_stdin) != profile.can_resume:
        raise InvalidInput("not an agent profile: `resume_by_stdin` and `resume` go together")
    return profile


def _check_placeholders(key: str, parts: tuple[str, ...], allowed: set[str]) -> None:
    found = {name for part in parts for name in _PLACEHOLDER.findall(part)}
    if not found <= allowed:
        raise InvalidInput(f"not an agent profile: `{key}` has unknown placeholders {sorted(found - allowed)}")
