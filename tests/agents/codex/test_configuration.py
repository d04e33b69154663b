"""Codex's own login and configuration."""

import pytest
from tests.agents.fake_machine import FakeMachine, metered

LOGIN, CONFIG = "home/.codex/auth.json", "home/.codex/config.toml"
PROVIDER = '[model_providers.fake]\nname = "fake"\nbase_url = "https://x.example.com/v1"\n'


@pytest.mark.parametrize(
    "login",
    [{"auth_mode": "chatgpt", "OPENAI_API_KEY": "sk-1", "tokens": {}}, {"OPENAI_API_KEY": None, "tokens": {}}, {}],
)
def test_a_login_of_the_plan_has_no_findings(machine: FakeMachine, login: dict[str, object]) -> None:
    machine.write(LOGIN, login)

    assert machine.find("codex") == []


@pytest.mark.parametrize(
    ("login", "key"),
    [
        ({"OPENAI_API_KEY": "sk-1"}, "OPENAI_API_KEY"),
        ({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-1"}, "OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": "sk-1", "tokens": {"id_token": "x"}}, "OPENAI_API_KEY"),
        ({"auth_mode": "apikey"}, "auth_mode"),
    ],
)
def test_a_key_as_login_is_found(machine: FakeMachine, login: dict[str, object], key: str) -> None:
    machine.write(LOGIN, login)

    assert machine.keys("codex") == {LOGIN: [key]}


@pytest.mark.parametrize(
    "key",
    ['env_key = "FAKE_KEY"', 'experimental_bearer_token = "sk-1"', 'http_headers = { Authorization = "Bearer sk-1" }'],
)
def test_a_model_provider_with_a_key_is_found(machine: FakeMachine, key: str) -> None:
    machine.write(CONFIG, f'model_provider = "fake"\n{PROVIDER}{key}\n')

    assert machine.keys("codex") == {CONFIG: ["model_provider"]}


@pytest.mark.parametrize(
    "config",
    [
        'model = "gpt-5"',
        'model_provider = "openai"',
        'model_provider = "ollama"',
        f'model_provider = "fake"\n{PROVIDER}',
        f'{PROVIDER}env_key = "FAKE_KEY"',
    ],
)
def test_a_provider_that_is_not_used_or_has_no_key_is_none(machine: FakeMachine, config: str) -> None:
    machine.write(CONFIG, config)

    assert machine.find("codex") == []


def test_a_profile_and_an_argument_choose_a_provider_too(machine: FakeMachine) -> None:
    machine.write(CONFIG, f'{PROVIDER}env_key = "FAKE_KEY"\n')
    machine.write("home/.codex/night.config.toml", 'model_provider = "fake"\n')

    assert machine.keys("codex", args=("--profile", "night")) == {"home/.codex/night.config.toml": ["model_provider"]}
    assert machine.keys("codex", args=("-c", 'model_provider="fake"')) == {"the command line": ["model_provider"]}
    assert machine.find("codex") == []


def test_a_forced_key_is_found_because_codex_would_log_the_person_out(machine: FakeMachine) -> None:
    machine.write(CONFIG, 'forced_login_method = "api"\n')

    assert machine.keys("codex") == {CONFIG: ["forced_login_method"]}


def test_newer_toml_holds_only_if_it_names_a_payer(machine: FakeMachine) -> None:
    machine.write(CONFIG, "x = {\n a = 1,\n}\n")
    assert machine.find("codex") == []

    machine.write(CONFIG, 'x = {\n a = 1,\n}\nmodel_provider = "fake"\n')
    assert machine.keys("codex") == {CONFIG: [""]}


def test_the_own_key_of_a_metered_account_wins_over_the_login(machine: FakeMachine) -> None:
    machine.write(LOGIN, {"OPENAI_API_KEY": "sk-other"})

    assert machine.find("codex", metered("openai"), environ={"WORK_KEY": "sk-own"}) == []
