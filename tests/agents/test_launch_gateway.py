"""Agents pointed at the gateway: their environment, and what they can no longer reach."""

import msgspec
import pytest

from paceline.agents import Account, Task, load_agent, prepare_session
from paceline.agents.account import GatewayAddress, gateway_key
from paceline.agents.launch import EnvironmentRules
from paceline.agents.profile import check_agent
from paceline.errors import InvalidInput

GATEWAY = GatewayAddress("http://127.0.0.1:7433", "tok")
RULES = EnvironmentRules(key_variables=frozenset({"WORK_KEY", "OTHER_ACCOUNT"}))
ACCOUNT = Account(name="work-key", provider="anthropic", key_env="WORK_KEY", via_gateway=True)
TASK = Task(unit_id="docs/a", attempt_id="docs/a 1", prompt="say hi", cwd="/work", model="opus")
BASE = {"PATH": "/bin", "WORK_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", "ANTHROPIC_AUTH_TOKEN": "sk-3"}
KEY = gateway_key("tok", "work-key")
URL = "http://127.0.0.1:7433/gateway/work-key/~docs%2Fa%201"


def account(provider: str) -> Account:
    return msgspec.structs.replace(ACCOUNT, provider=provider)


@pytest.mark.parametrize(
    ("agent", "provider", "expected"),
    [
        ("claude", "anthropic", {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": KEY}),
        ("gemini", "gemini", {"GOOGLE_GEMINI_BASE_URL": URL, "GEMINI_API_KEY": KEY}),
        ("codex", "openai", {"PACELINE_GATEWAY_KEY": KEY}),
        ("qwen", "qwen", {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": KEY}),
        ("command", "anthropic", {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": KEY}),
        ("command", "google", {"GOOGLE_GEMINI_BASE_URL": URL, "GEMINI_API_KEY": KEY}),
        ("command", "vllm", {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": KEY}),
    ],
)
def test_its_base_url_names_account_and_session_and_its_key_is_for_them_alone(
    agent: str, provider: str, expected: dict[str, str]
) -> None:
    task = msgspec.structs.replace(TASK, command=("true",))

    env = prepare_session(load_agent(agent), task, account(provider), BASE, GATEWAY).env

    assert expected.items() <= env.items()


def test_no_key_stays_within_its_reach() -> None:
    env = prepare_session(load_agent("claude"), TASK, ACCOUNT, BASE, GATEWAY).env

    assert not {"sk-1", "sk-2", "sk-3", "tok"} & set(env.values())


def test_keys_of_other_providers_and_accounts_and_the_daemons_token_go_too() -> None:
    others = {"OPENAI_API_KEY": "sk-4", "GEMINI_API_KEY": "sk-5", "DEEPSEEK_API_KEY": "sk-6", "OTHER_ACCOUNT": "sk-7"}
    others["PACELINE_TOKEN"] = "tok"

    env = prepare_session(load_agent("claude"), TASK, ACCOUNT, {**BASE, **others}, GATEWAY, RULES).env

    assert not others.keys() & env.keys()


def test_a_key_of_another_provider_stays_where_the_account_itself_gives_it() -> None:
    given = msgspec.structs.replace(ACCOUNT, env={"OPENAI_API_KEY": "sk-for-the-tests", "ANTHROPIC_API_KEY": "sk-8"})

    env = prepare_session(load_agent("claude"), TASK, given, BASE, GATEWAY).env

    assert (env["OPENAI_API_KEY"], env["ANTHROPIC_API_KEY"]) == ("sk-for-the-tests", KEY)


def test_codex_is_given_a_provider_of_its_own_on_the_command_line() -> None:
    argv = prepare_session(load_agent("codex"), TASK, account("openai"), BASE, GATEWAY).argv

    assert argv[4:10] == (
        "--model",
        "opus",
        "-c",
        f'model_providers.paceline={{name="paceline",base_url="{URL}/v1",wire_api="responses",'
        'env_key="PACELINE_GATEWAY_KEY"}',
        "-c",
        'model_provider="paceline"',
    )


def test_without_the_option_nothing_of_it_is_there() -> None:
    direct = msgspec.structs.replace(ACCOUNT, via_gateway=False)

    run = prepare_session(load_agent("codex"), TASK, direct, BASE, GATEWAY)

    assert "PACELINE_GATEWAY_KEY" not in run.env
    assert not [part for part in run.argv if "paceline" in part]


def test_where_no_gateway_is_served_it_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'work-key' makes its calls through the gateway, which only `paceline up`"):
        prepare_session(load_agent("claude"), TASK, ACCOUNT, BASE)


def test_an_agent_that_cannot_be_pointed_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match="agent 'opencode' cannot make its calls through the gateway"):
        prepare_session(load_agent("opencode"), TASK, ACCOUNT, BASE, GATEWAY)


@pytest.mark.parametrize(
    "fields",
    [
        {"gateway_arguments": ["{uri}"], "gateway_environment": {"K": "{token}"}},
        {"gateway_arguments": ["{token}"], "gateway_environment": {"K": "{token}"}},
        {"gateway_environment": {"K": "{key}"}},
        {"gateway_arguments": ["{url}"]},
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="gateway_"):
        check_agent({"name": "mine", "provider": "x", "stream": "text", "start": ["mine", "{prompt}"], **fields})
