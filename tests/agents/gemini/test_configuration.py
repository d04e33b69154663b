"""Gemini CLI's settings and `.env` files."""

from tests.agents.fake_machine import FakeMachine, metered

SETTINGS = "home/.gemini/settings.json"


def method(name: str) -> dict[str, object]:
    return {"security": {"auth": {"selectedType": name}}}


def test_a_login_has_no_findings_whatever_an_env_file_says(machine: FakeMachine) -> None:
    machine.write(SETTINGS, method("oauth-personal"))
    machine.write("home/project/.env", "GEMINI_API_KEY=sk-1\n")

    assert machine.find("gemini") == []


def test_a_method_that_bills_is_found(machine: FakeMachine) -> None:
    for name in ("gemini-api-key", "vertex-ai"):
        machine.write(SETTINGS, method(name))
        assert machine.keys("gemini") == {SETTINGS: ["security.auth.selectedType"]}


def test_the_first_env_file_upward_counts(machine: FakeMachine) -> None:
    machine.write("home/.gemini/.env", "GOOGLE_API_KEY=sk-2\n")
    assert machine.keys("gemini") == {"home/.gemini/.env": ["GOOGLE_API_KEY"]}

    machine.write("home/project/.env", "GEMINI_API_KEY='sk-1'\nGOOGLE_GENAI_USE_VERTEXAI=true\n")
    assert machine.keys("gemini") == {"home/project/.env": ["GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"]}

    machine.write("home/project/.gemini/.env", "OTHER=1\n")
    assert machine.find("gemini") == []


def test_the_settings_of_the_project_and_the_system_win(machine: FakeMachine) -> None:
    machine.write(SETTINGS, method("oauth-personal"))
    machine.write("home/project/.gemini/settings.json", method("gemini-api-key"))
    assert list(machine.keys("gemini")) == ["home/project/.gemini/settings.json"]

    machine.write("etc/gemini-cli/settings.json", method("oauth-personal"))
    assert machine.find("gemini") == []


def test_a_metered_account_may_use_the_method_and_its_own_key_only(machine: FakeMachine) -> None:
    machine.write(SETTINGS, method("gemini-api-key"))
    machine.write("home/project/.env", "GEMINI_API_KEY=sk-own\n")
    assert machine.find("gemini", metered("google"), environ={"WORK_KEY": "sk-own"}) == []

    machine.write("home/project/.env", "GEMINI_API_KEY=sk-other\n")
    found = machine.keys("gemini", metered("google"), environ={"WORK_KEY": "sk-own"})
    assert found == {"home/project/.env": ["GEMINI_API_KEY"]}
