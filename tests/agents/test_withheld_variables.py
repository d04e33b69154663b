"""Names that a session never inherits by itself, and names that its tools need."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.agents import agent_names, load_agent
from paceline.agents.launch import is_in_strict_list, is_withheld, matches_any


def words(text: str) -> list[str]:
    return text.split()


KEYS = words("""
    ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_FOUNDRY_API_KEY AWS_BEARER_TOKEN_BEDROCK CLAUDE_CODE_OAUTH_TOKEN
    CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR OPENAI_API_KEY CODEX_API_KEY CODEX_ACCESS_TOKEN AZURE_OPENAI_API_KEY
    GEMINI_API_KEY
    GOOGLE_API_KEY GOOGLE_GENERATIVE_AI_API_KEY BAILIAN_CODING_PLAN_API_KEY DASHSCOPE_API_KEY OPENCODE_API_KEY
    OPENROUTER_API_KEY COPILOT_PROVIDER_API_KEY GROQ_API_KEY MISTRAL_API_KEY XAI_API_KEY DEEPSEEK_API_KEY
    CURSOR_API_KEY
""")
ADDRESSES_HEADERS_AND_SWITCHES = words("""
    ANTHROPIC_BASE_URL ANTHROPIC_BEDROCK_BASE_URL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_FOUNDRY_RESOURCE
    ANTHROPIC_VERTEX_PROJECT_ID
    CLAUDE_CODE_USE_BEDROCK CLAUDE_CODE_USE_VERTEX CLAUDE_CODE_USE_FOUNDRY CLAUDE_CODE_SKIP_BEDROCK_AUTH CLOUD_ML_REGION
    OPENAI_BASE_URL OPENAI_API_BASE OPENAI_ORGANIZATION GOOGLE_GEMINI_BASE_URL GOOGLE_GENAI_USE_VERTEXAI
    GOOGLE_APPLICATION_CREDENTIALS DASHSCOPE_BASE_URL COPILOT_PROVIDER_BASE_URL COPILOT_PROVIDER_TYPE
""")
SECRETS = words("""
    GITHUB_TOKEN GH_TOKEN NPM_TOKEN CARGO_REGISTRY_TOKEN VAULT_TOKEN TOKEN API_KEY STRIPE_SECRET_KEY JWT_SECRET
    SECRET_KEY_BASE
    PGPASSWORD MYSQL_PWD DB_PASS TWINE_PASSWORD SSH_PRIVATE_KEY KEY_PASSPHRASE GCP_CREDENTIALS DOCKER_AUTH_CONFIG
    AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_PROFILE AZURE_CLIENT_SECRET npm_config__authToken openai_api_key
    PACELINE_TOKEN PACELINE_GATEWAY_KEY
""")
NEEDED = words("""
    PATH HOME LANG LC_ALL TZ TERM JAVA_HOME CARGO_HOME RUSTUP_HOME GOPATH VIRTUAL_ENV NVM_DIR NODE_OPTIONS PYTHONPATH
    LD_LIBRARY_PATH HTTP_PROXY https_proxy NO_PROXY SSL_CERT_FILE SSH_AUTH_SOCK SSH_ASKPASS GIT_ASKPASS XAUTHORITY
    DISPLAY DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR KUBECONFIG DOCKER_HOST DATABASE_URL CI GITHUB_ACTIONS PWD OLDPWD
    EDITOR AWS_CA_BUNDLE
    CLAUDE_CONFIG_DIR CODEX_HOME CLAUDE_CODE_MAX_OUTPUT_TOKENS MAX_THINKING_TOKENS ANTHROPIC_MODEL
    ANTHROPIC_DEFAULT_OPUS_MODEL OPENAI_MODEL GOOGLE_CLOUD_PROJECT PACELINE_HOME PACELINE_URL MONKEY COMPASS KEYTIMEOUT
""")


def test_billing_variables_of_every_provider_and_secrets_are_withheld() -> None:
    assert [name for name in KEYS + ADDRESSES_HEADERS_AND_SWITCHES + SECRETS if not is_withheld(name)] == []


@given(st.from_regex(r"[A-Z][A-Z0-9]{0,9}", fullmatch=True), st.sampled_from(words("API_KEY TOKEN SECRET PASSWORD")))
def test_whatever_is_named_as_a_secret_is_withheld(owner: str, what: str) -> None:
    assert is_withheld(f"{owner}_{what}")


def test_what_builds_and_tools_need_is_kept() -> None:
    assert [name for name in NEEDED if is_withheld(name)] == []


def test_everything_that_a_shipped_agent_could_bill_with_is_withheld() -> None:
    names = [name.replace("*", "X") for agent in agent_names() for name in load_agent(agent).metered_variables]

    assert [name for name in names if not is_withheld(name)] == []


def test_the_strict_list_is_short_and_has_no_secret() -> None:
    everything = {*KEYS, *ADDRESSES_HEADERS_AND_SWITCHES, *SECRETS, *NEEDED}

    assert {name for name in everything if is_in_strict_list(name)} == {
        *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "PWD", "HTTP_PROXY", "https_proxy", "NO_PROXY"),
        *("SSL_CERT_FILE", "XDG_RUNTIME_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "PACELINE_HOME", "PACELINE_URL"),
    }


def test_a_pattern_matches_whole_names_and_their_case() -> None:
    assert matches_any("GITHUB_TOKEN", ("GITHUB_*",))
    assert not matches_any("MY_GITHUB_TOKEN", ("GITHUB_*",))
    assert not matches_any("github_token", ("GITHUB_*",))
