"""The environment of a session: what it inherits, what it does not, and which key it has."""

import msgspec
import pytest

from paceline.agents import Account, AgentProfile, load_agent
from paceline.agents.launch import (
    EnvironmentRules,
    session_environment,
)
from paceline.agents.profile import check_agent
from paceline.errors import InvalidInput, WouldBillKey

MAX_1 = Account(name="max-1", provider="anthropic", kind="subscription", env={"CLAUDE_CONFIG_DIR": "~/.max-1"})
LOGIN = Account(name="max-2", provider="anthropic", kind="subscription")
WORK = Account(name="work", provider="anthropic", key_env="WORK_KEY")
BUILD = {"PATH": "/bin", "HOME": "/home/me", "JAVA_HOME": "/jdk", "SSH_AUTH_SOCK": "/s", "HTTPS_PROXY": "http://p"}
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-1",
    "ANTHROPIC_BASE_URL": "http://elsewhere",
    "CLAUDE_CODE_OAUTH_TOKEN": "oat-1",
    "OPENAI_API_KEY": "sk-2",
    "GITHUB_TOKEN": "gh-1",
    "PACELINE_TOKEN": "tok",
    "WORK_KEY": "sk-3",
    "OTHER_ACCOUNT": "sk-4",
}
KEYS_OF_ACCOUNTS = frozenset({"WORK_KEY", "OTHER_ACCOUNT"})
RULES = EnvironmentRules(key_variables=KEYS_OF_ACCOUNTS)


def rules(**fields: object) -> EnvironmentRules:
    return msgspec.structs.replace(RULES, **fields)


def inherited(agent: str, account: Account | None, given: EnvironmentRules = RULES) -> dict[str, str]:
    """What of SECRETS reaches the session, under whatever name."""
    env = session_environment(load_agent(agent), account, BUILD | SECRETS, given).env
    return {name: value for name, value in env.items() if value in SECRETS.values()}


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode", "copilot", "aider", "command"])
def test_no_key_and_no_secret_reaches_a_session_of_a_subscription(agent: str) -> None:
    kept = {"GITHUB_TOKEN"} if agent == "copilot" else set()

    assert inherited(agent, MAX_1).keys() - kept == set()


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode", "aider", "command"])
def test_the_tools_of_a_session_find_what_they_need(agent: str) -> None:
    assert session_environment(load_agent(agent), None, BUILD | SECRETS, RULES).env.items() >= BUILD.items()


def test_a_session_without_an_account_keeps_the_login_of_its_cli_and_no_key() -> None:
    assert inherited("claude", None) == {"CLAUDE_CODE_OAUTH_TOKEN": "oat-1"}
    assert inherited("claude", LOGIN) == {"CLAUDE_CODE_OAUTH_TOKEN": "oat-1"}
    assert inherited("copilot", None) == {"GITHUB_TOKEN": "gh-1"}
    assert inherited("command", None) == {}


def test_an_account_with_a_folder_of_its_own_does_not_use_another_login() -> None:
    assert inherited("claude", MAX_1) == {}


@pytest.mark.parametrize(
    ("agent", "provider", "variable"),
    [
        ("claude", "anthropic", "ANTHROPIC_API_KEY"),
        ("codex", "openai", "CODEX_API_KEY"),
        ("gemini", "google", "GEMINI_API_KEY"),
        ("qwen", "qwen", "OPENAI_API_KEY"),
        ("opencode", "anthropic", "ANTHROPIC_API_KEY"),
        ("opencode", "google", "GOOGLE_GENERATIVE_AI_API_KEY"),
        ("aider", "deepseek", "DEEPSEEK_API_KEY"),
        ("copilot", "github", "COPILOT_PROVIDER_API_KEY"),
    ],
)
def test_a_metered_session_gets_its_own_key_where_its_cli_reads_it_and_no_other(
    agent: str, provider: str, variable: str
) -> None:
    assert inherited(agent, msgspec.structs.replace(WORK, provider=provider)) == {variable: "sk-3"}


def test_a_command_on_a_metered_account_finds_the_key_by_both_names() -> None:
    assert inherited("command", WORK) == {"ANTHROPIC_API_KEY": "sk-3", "WORK_KEY": "sk-3"}


def test_two_metered_accounts_never_share_a_key() -> None:
    first = msgspec.structs.replace(WORK, name="a", key_env="ANTHROPIC_API_KEY")
    both = rules(key_variables=KEYS_OF_ACCOUNTS | {"ANTHROPIC_API_KEY"})

    assert inherited("claude", first, both) == {"ANTHROPIC_API_KEY": "sk-1"}
    assert inherited("claude", WORK, both) == {"ANTHROPIC_API_KEY": "sk-3"}


def test_a_metered_account_without_a_named_key_takes_its_clis_own_unless_another_account_owns_it() -> None:
    unnamed = msgspec.structs.replace(WORK, key_env=None)

    assert inherited("claude", unnamed) == {"ANTHROPIC_API_KEY": "sk-1"}
    assert inherited("claude", unnamed, rules(key_variables=KEYS_OF_ACCOUNTS | {"ANTHROPIC_API_KEY"})) == {}


def test_a_metered_account_whose_key_is_not_set_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'work' takes its key from WORK_KEY, which is not set"):
        session_environment(load_agent("claude"), WORK, BUILD, RULES)


def test_a_plan_readmits_names_and_patterns() -> None:
    assert inherited("claude", MAX_1, rules(env_pass=("GITHUB_*", "OPENAI_API_KEY"))) == {
        "GITHUB_TOKEN": "gh-1",
        "OPENAI_API_KEY": "sk-2",
    }


@pytest.mark.parametrize("env_pass", [("ANTHROPIC_API_KEY",), ("*",)])
def test_a_plan_cannot_readmit_the_key_that_would_be_billed_instead_of_a_subscription(
    env_pass: tuple[str, ...],
) -> None:
    with pytest.raises(WouldBillKey, match=r"'max-1' is a subscription, but .*ANTHROPIC_API_KEY"):
        inherited("claude", MAX_1, rules(env_pass=env_pass))


def test_without_an_account_a_plan_readmits_a_key_only_if_it_allows_metered_sessions() -> None:
    env_pass = ("ANTHROPIC_API_KEY",)

    with pytest.raises(WouldBillKey, match=r"names no account, .* or set allow_metered = true"):
        inherited("claude", None, rules(env_pass=env_pass))
    allowed = inherited("claude", None, rules(env_pass=env_pass, allow_metered=True))

    assert allowed == {"ANTHROPIC_API_KEY": "sk-1", "CLAUDE_CODE_OAUTH_TOKEN": "oat-1"}


def test_a_command_may_be_given_any_key() -> None:
    assert inherited("command", None, rules(env_pass=("OPENAI_API_KEY",))) == {"OPENAI_API_KEY": "sk-2"}


def test_a_strict_session_inherits_a_short_list_and_what_the_plan_names() -> None:
    given = rules(env_strict=True, env_pass=("GITHUB_TOKEN",))

    env = session_environment(load_agent("command"), None, BUILD | SECRETS, given).env

    assert env.keys() == {"PATH", "HOME", "HTTPS_PROXY", "GITHUB_TOKEN"}


def test_the_names_that_are_withheld_are_known_without_their_values() -> None:
    found = session_environment(load_agent("claude"), MAX_1, BUILD | SECRETS, RULES)

    assert found.withheld == tuple(sorted(SECRETS))


def test_a_switch_that_only_a_profile_of_the_user_knows_is_withheld_too() -> None:
    mine: dict[str, object] = {"name": "mine", "provider": "x", "stream": "text", "start": ["mine", "{prompt}"]}
    profile: AgentProfile = check_agent(mine | {"metered_variables": ["MINE_BILLS"]})

    found = session_environment(profile, None, {"MINE_BILLS": "1", "PATH": "/bin"}, RULES)

    assert (found.env, found.withheld) == ({"PATH": "/bin"}, ("MINE_BILLS",))


def test_the_variables_of_the_account_win_over_those_of_the_plan() -> None:
    added = {"CLAUDE_CONFIG_DIR": "/another/login", "LANG": "C"}

    env = session_environment(load_agent("claude"), MAX_1, BUILD, RULES, added).env

    assert (env["CLAUDE_CONFIG_DIR"], env["LANG"]) == ("/home/me/.max-1", "C")


def test_an_address_that_the_account_itself_names_stays() -> None:
    own = msgspec.structs.replace(MAX_1, env={"ANTHROPIC_BASE_URL": "http://mine"})

    env = session_environment(load_agent("claude"), own, BUILD | SECRETS, RULES).env

    assert env["ANTHROPIC_BASE_URL"] == "http://mine"


def test_a_plan_cannot_readmit_another_key_on_a_metered_account() -> None:
    with pytest.raises(WouldBillKey, match=r"'work' bills the key in WORK_KEY, but .*ANTHROPIC_AUTH_TOKEN"):
        session_environment(load_agent("claude"), WORK, BUILD | SECRETS, RULES, {"ANTHROPIC_AUTH_TOKEN": "sk-9"})


def test_a_default_login_that_may_bill_keeps_its_login_and_gets_a_key_only_from_env_pass() -> None:
    default = Account(name="default", provider="anthropic", kind="metered", is_implicit=True)

    assert inherited("claude", default, rules(allow_metered=True)) == {"CLAUDE_CODE_OAUTH_TOKEN": "oat-1"}
