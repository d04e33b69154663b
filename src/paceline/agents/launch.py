"""The preparation of a session: arguments, environment, folder and input from a profile, an account and a task.

Here: pure functions of those values; the environment to start from is an argument. A session gets the user's own, less
what could bill another payer or leak a secret; the names of such variables are here, by families. Never here: files, or
starting a process.

Also the check of values in code: a shell runs whatever it finds in its script, so an id such as `x; rm -rf .` would be
a program. So do interpreters (`python3 -c`), commands that start a shell (`su -c`, `ssh`), and scripts that evaluate
their arguments.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate

import msgspec

from paceline.agents.account import Account, GatewayAddress
from paceline.agents.profile import AgentProfile, filled, filled_arguments, load_agent
from paceline.errors import InvalidInput, WouldBillKey

# -- the environment of a session ------------------------------------------------------------------

TOKEN_VARIABLE = "PACELINE_TOKEN"
"""The variable from which programs take the daemon's token."""

_PROVIDERS = """
    ANTHROPIC AZURE_OPENAI BAILIAN CEREBRAS CODEX COHERE COPILOT_PROVIDER CURSOR DASHSCOPE DEEPSEEK FIREWORKS GEMINI
    GOOGLE_GEMINI GOOGLE_GENAI GOOGLE_GENERATIVE_AI GOOGLE_VERTEX GROQ LITELLM MINIMAX MISTRAL MODELSCOPE MOONSHOT
    OPENAI OPENCODE OPENROUTER PERPLEXITY QWEN TOGETHER VERCEL_AI_GATEWAY VERTEX XAI ZAI ZHIPU"""
_DECIDES_WHO_PAYS = (
    r"(?:.*_)?(?:API_?KEYS?|KEYS?|AUTH_TOKEN|TOKEN|BEARER|OAUTH|AUTH|CREDENTIALS?"
    r"|BASE_?URL|API_?BASE|BASE|URL|URI|ENDPOINT|HOST|HEADERS?|QUERY_PARAMS"
    r"|USE_\w+|SKIP_\w*AUTH|ORG|ORG_ID|ORGANIZATION|PROJECT|PROJECT_ID|REGION|LOCATION|RESOURCE|API_VERSION|API_TYPE)"
    r"(?:_FILE|_FILE_DESCRIPTOR|_PATH|_HELPER|_NAME|_\d+)?"
)
"""The rest of a provider's variable that names a key, an address, a header or a switch. Names of models stay."""
_FAMILIES = (
    rf"(?:{'|'.join(_PROVIDERS.split())})_{_DECIDES_WHO_PAYS}",
    r"(?:ANTHROPIC|OPENAI|COPILOT_PROVIDER|AZURE_OPENAI)_(?!.*MODEL).*",  # whole families, but for models
    r"CLAUDE_CODE_(?:USE|SKIP)_(?:BEDROCK|VERTEX|FOUNDRY|MANTLE|ANTHROPIC)\w*",
    r"CLAUDE_CODE_(?:API_KEY|OAUTH|SESSION_ACCESS|CLIENT_KEY|CLIENT_CERT)\w*",
    r"CODEX_(?:API_KEY|ACCESS_TOKEN|\w*_URL_OVERRIDE)",
    r"GOOGLE_(?:API_KEY|APPLICATION_CREDENTIALS)",
    r"CLOUD_ML_REGION|VERTEX_REGION_\w+",
    r"AIDER_\w*(?:API_KEY|API_BASE)\w*",
    r"(?:AWS|AZURE)_\w+",
)
_SECRETS = (
    r"(?:.*_)?(?:API)?KEY(?:_ID|_BASE64|_B64|_PEM|_VALUE)?",
    r"(?:.*_)?(?:ACCESS_|AUTH_|REFRESH_|ID_)?TOKEN(?:_BASE64|_B64|_VALUE)?",
    r".*(?:AUTHTOKEN|APITOKEN|ACCESSTOKEN).*",
    r".*SECRET.*",
    r".*(?:PASSWORD|PASSWD|PASSPHRASE).*",
    r"(?:.*_)(?:PASS|PWD|PAT|APIKEYS|API_KEYS|KEYS)",
    r".*CREDENTIALS?(?:_JSON|_BASE64|_B64)?",
    r".*PRIVATE_?KEY.*",
    r"DOCKER_AUTH_CONFIG|NPM_CONFIG_.*AUTH.*|BW_SESSION|OP_SESSION_.*",
)
_STAYS = (
    r"AWS_CA_BUNDLE|SSH_AUTH_SOCK|SSH_ASKPASS|GIT_ASKPASS|SUDO_ASKPASS|XAUTHORITY|GPG_TTY",
    r"GOOGLE_CLOUD_(?:PROJECT|LOCATION)",  # a Gemini login of a company needs its project
    r"CODEX_HOME|OPENCODE_CONFIG(?:_DIR)?|QWEN_HOME|OPENCLAW_(?:HOME|STATE_DIR|CONFIG_PATH)",
)
_STRICT = (
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|COLORTERM|NO_COLOR|TZ|TZDIR|TMPDIR|TMP|TEMP|HOSTNAME",
    r"LANG|LANGUAGE|LC_\w+",
    r"XDG_\w+",
    r"(?:HTTPS?|ALL|NO|FTP)_PROXY",
    r"SSL_CERT_(?:FILE|DIR)|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    r"CLAUDE_CONFIG_DIR|CODEX_HOME|COPILOT_HOME|GEMINI_CLI_HOME|QWEN_HOME|OPENCODE_CONFIG(?:_DIR)?",
    r"OPENCLAW_(?:HOME|STATE_DIR|CONFIG_PATH)",
    r"PACELINE_(?:HOME|CONFIG|URL)",
)


def _names(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_WITHHELD = _names((*_FAMILIES, *_SECRETS))
_NEVER_WITHHELD = _names(_STAYS)
_ALLOWED_IN_STRICT = _names(_STRICT)


@functools.cache
def is_withheld(name: str) -> bool:
    """Return whether a variable of this name is a provider's billing variable or looks like a secret."""
    if name == TOKEN_VARIABLE:
        return True
    return _WITHHELD.fullmatch(name) is not None and _NEVER_WITHHELD.fullmatch(name) is None


def is_in_strict_list(name: str) -> bool:
    """Return whether a variable of this name reaches a session with `env_strict`."""
    return _ALLOWED_IN_STRICT.fullmatch(name) is not None


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether the name is one of the names, or fits one of the patterns (`GITHUB_*`)."""
    return _matcher(frozenset(patterns)).match(name) is not None


@functools.lru_cache(maxsize=256)
def _matcher(patterns: frozenset[str]) -> re.Pattern[str]:
    """Return one expression for all patterns. A plan of ten thousand units asks about every variable of each."""
    return re.compile("|".join(map(translate, sorted(patterns))) or r"(?!)")


AGENT_OF_PROVIDER = {
    "anthropic": "claude",
    "openai": "codex",
    "google": "gemini",
    "gemini": "gemini",
    "qwen": "qwen",
    "alibaba": "qwen",
    "github": "copilot",
}
"""The agent whose profile lists the variables that bill a key of this provider."""
SDK_KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Where the SDKs of a provider read a key, for a plan's own command. All others use OpenAI's."""
_OWN_KEYS_ONLY = frozenset({"claude", "codex", "gemini"})
"""The CLIs that send a key to their own provider only. The others can be set up for keys of many."""
ANY_PROVIDER = "*"
NOTHING: Mapping[str, str] = {}


class EnvironmentRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which variables a session inherits: the rules of its plan, and the variables that hold the keys of accounts."""

    env_pass: tuple[str, ...] = ()
    """Names or patterns that are not withheld."""
    env_strict: bool = False
    """Whether only a short allow-list is inherited."""
    allow_metered: bool = False
    """Whether a session without an account may bill a key."""
    key_variables: frozenset[str] = frozenset()
    """The `key_env` of every account."""


class SessionEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The variables of a session, and the names that it does not inherit."""

    env: dict[str, str]
    withheld: tuple[str, ...] = ()


def session_environment(
    profile: AgentProfile,
    account: Account | None,
    base_env: Mapping[str, str],
    rules: EnvironmentRules,
    added: Mapping[str, str] = NOTHING,
    gateway_variables: Mapping[str, str] | None = None,
) -> SessionEnvironment:
    """Return the environment of a session: what it inherits, then variables of the profile, the plan and the account.

    `added` are the variables of the plan. With `gateway_variables` these take the place of the account's own key.
    Raise `WouldBillKey` if a key would be billed instead of a subscription, `InvalidInput` if the own key is not set.
    """
    billed = metered_variables(profile, account)
    passed = {name for name in base_env if matches_any(name, rules.env_pass)} if rules.env_pass else set()
    has_key = account is not None and account.kind == "metered" and account.key_env is not None
    if has_key or not may_bill(account, rules):
        own = {key_variable(profile, account), account.key_env} if account is not None and has_key else set()
        _refuse_metered(account, billed, (passed | added.keys()) - own)
    kept = passed | _login_variables(profile, account)
    inherited = {name: value for name, value in base_env.items() if name in kept or _is_inherited(name, rules, billed)}
    own_env = _expanded(account.env, base_env) if account is not None else {}
    env = {**inherited, **profile.environment, **added, **own_env}
    if gateway_variables is None:
        env |= _own_key(profile, account, base_env, rules)
    else:
        env = {name: value for name, value in env.items() if not matches_any(name, billed)} | dict(gateway_variables)
    return SessionEnvironment(env=env, withheld=tuple(sorted(base_env.keys() - env.keys())))


def program_environment(base_env: Mapping[str, str], rules: EnvironmentRules) -> SessionEnvironment:
    """Return the environment of a plain program that a person starts: their own, less Paceline's token and the keys
    of accounts, unless they are readmitted."""
    ours = rules.key_variables | {TOKEN_VARIABLE}
    env = {name: value for name, value in base_env.items() if name not in ours or matches_any(name, rules.env_pass)}
    return SessionEnvironment(env=env, withheld=tuple(sorted(base_env.keys() - env.keys())))


@functools.lru_cache(maxsize=4096)  # every session of a plan asks about the same names
def _is_inherited(name: str, rules: EnvironmentRules, billed: frozenset[str]) -> bool:
    if rules.env_strict:
        return is_in_strict_list(name)
    return not (name in rules.key_variables or is_withheld(name) or matches_any(name, billed))


def may_bill(account: Account | None, rules: EnvironmentRules) -> bool:
    """Return whether a session may bill a key: its account is metered, or the plan accepts it for a default login."""
    is_default = account is None or account.is_implicit
    return rules.allow_metered if is_default else account is not None and account.kind == "metered"


def metered_variables(profile: AgentProfile, account: Account | None) -> frozenset[str]:
    """Return names and patterns of variables that make this agent, or a command in its place, bill a key."""
    return frozenset(name for each in _profiles(profile, account) for name in each.metered_variables)


def _profiles(profile: AgentProfile, account: Account | None) -> list[AgentProfile]:
    """Return the profile, and that of the provider's own CLI: a command may start it."""
    agent = AGENT_OF_PROVIDER.get(account.provider) if account is not None else None
    return [profile] if agent is None else [profile, load_agent(agent)]


def _login_variables(profile: AgentProfile, account: Account | None) -> frozenset[str]:
    """Return the variables that are the login of the session: those of the CLI, unless the account has its own."""
    if account is not None and not account.is_implicit and (account.kind == "metered" or _has_own_login(account)):
        return frozenset()
    return frozenset(name for each in _profiles(profile, account) for name in each.login_variables)


def _has_own_login(account: Account) -> bool:
    """Return whether the account names the folder of its login. A token in the environment is then another login."""
    return any(name == "HOME" or name.endswith(("_DIR", "_HOME")) for name in account.env)


def _refuse_metered(account: Account | None, billed: frozenset[str], set_by_plan: set[str]) -> None:
    """Refuse variables that would be billed instead of the account: its own, those of the plan, and readmitted ones."""
    is_subscription = account is not None and account.kind == "subscription"
    if account is None or account.is_implicit:
        who, fix = "the plan names no account", "remove it, or set allow_metered = true"
    elif is_subscription:
        who, fix = f"account {account.name!r} is a subscription", "remove it, or make the account metered"
    else:
        who, fix = f"account {account.name!r} bills the key in {account.key_env}", "remove it"
    if account is not None and is_subscription and (named := _matching(account.env, billed)):
        raise WouldBillKey(f"{who}, but its env sets {named}, which would be billed instead; {fix}")
    if named := _matching(set_by_plan, billed):
        raise WouldBillKey(
            f"{who}, but the plan's env or env_pass gives its sessions {named}, which would be billed instead; {fix}"
        )


def _matching(names: Iterable[str], patterns: frozenset[str]) -> str:
    return ", ".join(sorted(name for name in names if matches_any(name, patterns)))


def _own_key(
    profile: AgentProfile, account: Account | None, base_env: Mapping[str, str], rules: EnvironmentRules
) -> dict[str, str]:
    """Return the key of a metered account under the name that the CLI reads.

    Without `key_env` that is the variable of the CLI itself, unless it belongs to another account.
    """
    if account is None or account.is_implicit or account.kind != "metered":
        return {}
    variable = key_variable(profile, account)
    source = account.key_env or variable
    value = account.env.get(source) or base_env.get(source)
    if account.key_env is None:
        return {variable: value} if value and variable not in rules.key_variables else {}
    if not value:
        raise InvalidInput(f"account {account.name!r} takes its key from {account.key_env}, which is not set")
    named_too = {} if profile.start else {source: value}  # a plan's own command may read it by its own name
    return {variable: value, **named_too}


def agent_of_other_provider(profile: AgentProfile, account: Account) -> str | None:
    """Return the agent whose CLI the account is for, if the profile's CLI could not use it.

    Only what is certain: CLIs with the logins of many providers, and providers without a CLI, fit everywhere.
    """
    own = os.path.basename(profile.start[0]) if profile.start else ""
    wanted = AGENT_OF_PROVIDER.get(account.provider)
    one_provider = _OWN_KEYS_ONLY if account.kind == "metered" else frozenset(AGENT_OF_PROVIDER.values())
    is_moved = any(name.endswith("_BASE_URL") for name in account.env)  # another service answers there
    return None if is_moved or own not in one_provider or wanted in (None, own) else wanted


def key_variable(profile: AgentProfile, account: Account) -> str:
    """Return the variable in which the agent reads a key of the account's provider."""
    names = profile.key_variables
    found = names.get(account.provider) or names.get(ANY_PROVIDER)
    if found is not None:
        return found
    if not profile.start:
        return SDK_KEY_VARIABLES.get(account.provider, "OPENAI_API_KEY")
    return account.key_env or next((name for name in profile.metered_variables if "*" not in name), "")


def _expanded(env: Mapping[str, str], base_env: Mapping[str, str]) -> dict[str, str]:
    home = base_env.get("HOME") or "~"
    return {name: home + value[1:] if f"{value}/".startswith("~/") else value for name, value in env.items()}


# -- values in code ---------------------------------------------------------------------------------

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


# -- arguments and input ----------------------------------------------------------------------------

LONGEST_ARGUMENT_BYTES = 120_000
"""Linux accepts 131,071 bytes in one argument; the rest is a margin for what surrounds the prompt."""
NO_RULES = EnvironmentRules()


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
    environment = session_environment(profile, account, base_env, rules, added, gateway_variables)
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
