"""Qwen Code's settings and `.env` files."""

import pytest
from tests.agents.fake_machine import FakeMachine

SETTINGS = "home/.qwen/settings.json"


def test_its_own_login_has_no_findings_whatever_an_env_file_says(machine: FakeMachine) -> None:
    machine.write(SETTINGS, {"security": {"auth": {"selectedType": "qwen-oauth"}}})
    machine.write("home/project/.env", "OPENAI_API_KEY=sk-1\n")

    assert machine.find("qwen") == []


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"security": {"auth": {"selectedType": "openai"}}}, "security.auth.selectedType"),
        ({"env": {"OPENAI_API_KEY": "sk-1"}}, "env.OPENAI_API_KEY"),
        ({"security": {"auth": {"apiKey": "sk-1"}}}, "security.auth.apiKey"),
    ],
)
def test_settings_that_bill_are_found(machine: FakeMachine, settings: dict[str, object], key: str) -> None:
    machine.write(SETTINGS, settings)

    assert machine.keys("qwen") == {SETTINGS: [key]}


def test_the_env_files_of_the_project_and_of_the_home_count(machine: FakeMachine) -> None:
    machine.write("home/project/.env", "DASHSCOPE_API_KEY=sk-1\n")
    machine.write("home/.env", "OPENAI_API_KEY=sk-2\n")

    assert machine.keys("qwen") == {"home/project/.env": ["DASHSCOPE_API_KEY"], "home/.env": ["OPENAI_API_KEY"]}


def test_the_key_of_a_coding_plan_is_not_billed_per_token(machine: FakeMachine) -> None:
    machine.write(SETTINGS, {"env": {"BAILIAN_CODING_PLAN_API_KEY": "sk-sp-1"}})

    assert machine.find("qwen") == []
