"""The preparation of a session: arguments, environment, folder and input from a profile, an account and a task.

Here: pure functions of those values; the environment to start from is an argument. Also the check of values in code:
a shell runs whatever it finds in its script, so an id such as `x; rm -rf .` would be a program. So do interpreters
(`python3 -c`), commands that start a shell (`su -c`, `ssh`), and scripts that evaluate their arguments. Never here:
starting a process.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from paceline.agents.account import Account, GatewayAddress
from paceline.agents.profile import AgentProfile, filled, filled_arguments, load_agent
from paceline.agents.session_environment import (
    AGENT_OF_PROVIDER,
    EnvironmentRules,
    SessionEnvironment,
    session_environment,
)
from paceline.errors import InvalidInput

_CODE_FLAG = re.compile(
    r"-[A-Za-z]{0,4}[ceES]"
    r"|--?(?:command|cmd|eval|evaluate|exec|execute|expression|run|script|session-command|split-string)"
)
"""Flags whose value is code, in whatever program: `-c`, `-lc`, `-ne`, `-S` of env, `--eval`. The rule is wider than the
programs that are known to have them: what it refuses by mistake has another form, and what it misses is run."""
_OWN_FLAGS = {"php": "-[BERr]", "node": "-p|--print", "nodejs": "-p|--print", "bun": "-p|--print"}
"""Flags for code of one program, which mean something else in others."""
_ALL_ARGUMENTS = frozenset({"ssh", "autossh", "rsh", "mosh", "awk", "gawk", "mawk", "nawk", "sed", "gsed"})
"""Programs that run plain arguments as code, or join them into a command line for a shell."""
_ALL_ARGUMENTS_FIRST = frozenset({"deno", "expect", "make", "gmake", "parallel", "screen", "tmux", "watch"})
"""The same; these names are also words, so they count only at the beginning of the command line."""
_EVALUATES = re.compile(
    r"\beval\b(?!\s+\"?\$\()|\b(?:exec|popen|spawn|system)\s*\(|\bsystem\s+[\"'$]|shell\s*=\s*True"
    r"|\bssh\b[^|;&\n]*\$[\"'{@*\d]"
    r"|\b(?:\w*sh|su|script|python[\d.]*|perl|ruby|node)\b[^|;&\n]*\s-[A-Za-z]{0,4}[ce]\s+[\"']?\$"
)
"""What a script says that takes its own arguments for code: `eval "$1"`, `os.system(...)`, `sh -c "$1"`."""
_PLACEHOLDER = re.compile(r"\{(prompt|id|model|session_id)\}")
_HARMLESS = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)
"""Characters that mean nothing to a shell or an interpreter, in quotes or not. A space only ends a word."""
_PROMPT = "{prompt}"


def unsafe_placeholders(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the placeholders in code whose values the program could take for code of its own.

    Code that is exactly `{prompt}` is meant as such: there the prompt is the program.
    """
    names = dict.fromkeys(name for argument in _code_in(command) for name in _PLACEHOLDER.findall(argument))
    return [name for name in names if not _HARMLESS.fullmatch(values.get(name, ""))]


def unsafe_message(name: str, value: str) -> str:
    """Return what is wrong with a value in code, and the two ways to write it."""
    other = ", or use ${PACELINE_UNIT#*/}" if name == "id" else ""
    return (
        f"{{{name}}} is pasted into code, where {value!r:.80} could run as a program; pass it as an argument:"
        f' ["sh", "-c", "... \\"$1\\"", "sh", "{{{name}}}"]{other}'
    )


def _code_in(command: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that a program of this command line runs as code."""
    programs = [os.path.basename(part) for part in command]
    own_flags = "|".join(_OWN_FLAGS[program] for program in programs if program in _OWN_FLAGS)
    takes_all = bool(programs) and programs[0] in _ALL_ARGUMENTS_FIRST
    evaluates = is_value = False
    for part, program in zip(command, programs, strict=True):
        is_code = takes_all or _is_flag_with_code(part)
        if is_code or ((is_value or evaluates) and part != _PROMPT):
            yield part
        evaluates = evaluates or (is_value and _EVALUATES.search(part) is not None)
        takes_all = takes_all or program in _ALL_ARGUMENTS
        is_value = _CODE_FLAG.fullmatch(part) is not None or re.fullmatch(own_flags or r"(?!)", part) is not None


def _is_flag_with_code(part: str) -> bool:
    """Return whether the argument is such a flag with its value behind it: `--eval=...`, `-e...`."""
    flag, _, _ = part.partition("=")
    return _CODE_FLAG.fullmatch(flag) is not None or re.match(r"-[A-Za-z]{0,4}[ceES][^\w=.-]", part) is not None


LONGEST_ARGUMENT_BYTES = 120_000
"""Linux accepts 131,071 bytes in one argument; the rest is a margin for what surrounds the prompt."""
NO_RULES = EnvironmentRules()
Variables = Mapping[str, str]
MakeEnvironment = Callable[
    [AgentProfile, Account | None, Variables, EnvironmentRules, Variables, Variables | None], SessionEnvironment
]
"""`session_environment`, or that of an `EnvironmentMemory`."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one attempt. With a `conversation_id` it resumes that conversation."""

    unit_id: str
    attempt_id: str
    prompt: str
    cwd: str
    model: str | None = None
    conversation_id: str | None = None
    command: tuple[str, ...] = ()
    """The plan's own command line, for an agent whose profile has none."""
    permissions: str | None = None
    """What the agent may do: a level of its profile. None: what its CLI allows by default."""
    args: tuple[str, ...] = ()
    """More arguments of the plan, after all others that are not the prompt."""
    env: dict[str, str] = {}
    """More variables of the plan."""


class PreparedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a process needs to start."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdin: bytes = b""
    withheld: tuple[str, ...] = ()
    """The names of variables that it does not inherit."""


def prepare_session(
    profile: AgentProfile,
    task: Task,
    account: Account | None,
    base_env: Mapping[str, str],
    gateway: GatewayAddress | None = None,
    rules: EnvironmentRules = NO_RULES,
    make_environment: MakeEnvironment = session_environment,
) -> PreparedSession:
    """Return everything that a process needs. Raise `InvalidInput` if the task cannot be started."""
    _check_text("prompt", task.prompt)
    _refuse_nul("working directory", task.cwd)
    gateway_url, gateway_variables = None, None
    if account is not None and account.via_gateway:
        gateway = _served(account, gateway)
        gateway_url = gateway.of_session(account.name, task.attempt_id)
        gateway_variables = _gateway_variables(profile, account, gateway_url, gateway)
    added = filled(profile.permission_flags(task.permissions).environment, cwd=task.cwd) | task.env
    environment = make_environment(profile, account, base_env, rules, added, gateway_variables)
    env = environment.env | {"PACELINE_UNIT": task.unit_id, "PACELINE_ATTEMPT": task.attempt_id}
    argv, stdin = _fill_command(task) if not profile.start else _fill_profile(profile, task, gateway_url)
    for argument in argv:
        _check_text("command line", argument)
    return PreparedSession(argv=tuple(argv), env=env, cwd=task.cwd, stdin=stdin, withheld=environment.withheld)


def _served(account: Account, gateway: GatewayAddress | None) -> GatewayAddress:
    if gateway is None:
        raise InvalidInput(
            f"account {account.name!r} makes its calls through the gateway, which only `paceline up` serves;"
            " start `paceline up`, or remove via_gateway"
        )
    return gateway


def _gateway_variables(profile: AgentProfile, account: Account, url: str, gateway: GatewayAddress) -> dict[str, str]:
    """Return the variables that point the agent at the gateway, with a key for nothing else."""
    variables = profile.gateway_environment if profile.start else sdk_gateway_variables(account.provider)
    if not variables:
        raise InvalidInput(
            f"agent {profile.name!r} cannot make its calls through the gateway;"
            f" use another agent on account {account.name!r}, or remove via_gateway"
        )
    return filled(variables, url=url, token=gateway.key_of(account.name))


def sdk_gateway_variables(provider: str) -> dict[str, str]:
    """Return the variables that the SDKs of a provider read, with `{url}` and `{token}` to fill in."""
    agent = AGENT_OF_PROVIDER.get(provider)
    if agent in ("claude", "gemini"):
        return load_agent(agent).gateway_environment
    return {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "{token}"}


def _fill_profile(profile: AgentProfile, task: Task, gateway_url: str | None) -> tuple[list[str], bytes]:
    """Return arguments and input. The prompt goes to standard input where the CLI reads it.

    Every user of the machine can read the arguments of a process, a prompt may be longer than an argument can be,
    and one that begins with a dash would be taken for an option.
    """
    if not profile.takes_stdin and len(_encoded(task.prompt)) > LONGEST_ARGUMENT_BYTES:
        raise _too_long(f"agent {profile.name!r} takes its prompt only as an argument")
    prompt = None if profile.takes_stdin else task.prompt
    permissions = filled_arguments(profile.permission_flags(task.permissions).arguments, cwd=task.cwd)
    argv = profile.command_line(
        prompt,
        model=task.model,
        conversation_id=task.conversation_id,
        gateway_url=gateway_url,
        more=(*permissions, *task.args),
    )
    return argv, _encoded(task.prompt) if prompt is None else b""


def _fill_command(task: Task) -> tuple[list[str], bytes]:
    """Return the plan's command and its input. Without {prompt} in it the prompt goes to standard input."""
    if not task.command:
        raise InvalidInput("agent 'command' needs a command in the plan")
    values = {
        "prompt": task.prompt,
        "id": task.unit_id.rpartition("/")[2],
        "model": task.model or "",
        "session_id": task.conversation_id or "",
    }
    for name in unsafe_placeholders(task.command, values):
        raise InvalidInput(unsafe_message(name, values[name]))
    argv = [_PLACEHOLDER.sub(lambda found: values[found[1]], part) for part in task.command]
    if any("{prompt}" in part for part in task.command):
        if any(len(_encoded(argument)) > LONGEST_ARGUMENT_BYTES for argument in argv):
            raise _too_long("remove {prompt} from the command to get it on standard input")
        return [*argv, *task.args], b""
    return [*argv, *task.args], _encoded(task.prompt)


def _too_long(hint: str) -> InvalidInput:
    return InvalidInput(f"the prompt is longer than the {LONGEST_ARGUMENT_BYTES} bytes of an argument: {hint}")


def _check_text(what: str, text: str) -> None:
    _refuse_nul(what, text)
    _encoded(text)


def _refuse_nul(what: str, text: str) -> None:
    if "\0" in text:
        raise InvalidInput(f"the {what} has a NUL character at position {text.index(chr(0))}")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"not Unicode text at position {error.start}: {text[error.start]!r}") from None
