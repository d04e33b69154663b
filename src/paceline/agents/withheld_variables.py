"""Names of variables that a session does not inherit: billing variables of all providers, and names of secrets.

Here: decisions about names, by families of names. Never here: values, or what one CLI does with a variable.
"""

import functools
import re
from collections.abc import Iterable
from fnmatch import translate

TOKEN_VARIABLE = "PACELINE_TOKEN"
"""The variable from which programs take the daemon's token."""

_PROVIDERS = (
    "ANTHROPIC",
    "AZURE_OPENAI",
    "BAILIAN",
    "CEREBRAS",
    "CODEX",
    "COHERE",
    "COPILOT_PROVIDER",
    "CURSOR",
    "DASHSCOPE",
    "DEEPSEEK",
    "FIREWORKS",
    "GEMINI",
    "GOOGLE_GEMINI",
    "GOOGLE_GENAI",
    "GOOGLE_GENERATIVE_AI",
    "GOOGLE_VERTEX",
    "GROQ",
    "LITELLM",
    "MINIMAX",
    "MISTRAL",
    "MODELSCOPE",
    "MOONSHOT",
    "OPENAI",
    "OPENCODE",
    "OPENROUTER",
    "PERPLEXITY",
    "QWEN",
    "TOGETHER",
    "VERCEL_AI_GATEWAY",
    "VERTEX",
    "XAI",
    "ZAI",
    "ZHIPU",
)
_DECIDES_WHO_PAYS = (
    r"(?:.*_)?(?:API_?KEYS?|KEYS?|AUTH_TOKEN|TOKEN|BEARER|OAUTH|AUTH|CREDENTIALS?"
    r"|BASE_?URL|API_?BASE|BASE|URL|URI|ENDPOINT|HOST|HEADERS?|QUERY_PARAMS"
    r"|USE_\w+|SKIP_\w*AUTH|ORG|ORG_ID|ORGANIZATION|PROJECT|PROJECT_ID|REGION|LOCATION|RESOURCE|API_VERSION|API_TYPE)"
    r"(?:_FILE|_FILE_DESCRIPTOR|_PATH|_HELPER|_NAME|_\d+)?"
)
"""The rest of a provider's variable that names a key, an address, a header or a switch. Names of models stay."""
_FAMILIES = (
    rf"(?:{'|'.join(_PROVIDERS)})_{_DECIDES_WHO_PAYS}",
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
