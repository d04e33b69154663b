"""opencode's logins and configuration."""

from tests.agents.fake_machine import FakeMachine, metered

LOGINS, CONFIG = "home/.local/share/opencode/auth.json", "home/.config/opencode/opencode.json"
KEYED = {"provider": {"openai": {"options": {"apiKey": "sk-1"}}}}


def test_a_login_of_a_plan_has_no_findings(machine: FakeMachine) -> None:
    machine.write(LOGINS, {"anthropic": {"type": "oauth", "access": "x", "refresh": "y"}})
    machine.write(CONFIG, {"provider": {"local": {"options": {"baseURL": "http://127.0.0.1:1/v1"}}}})

    assert machine.find("opencode") == []


def test_a_key_as_login_is_found_unless_the_model_belongs_to_another_provider(machine: FakeMachine) -> None:
    machine.write(LOGINS, {"openai": {"type": "api", "key": "sk-1"}, "anthropic": {"type": "oauth"}})

    assert machine.keys("opencode") == {LOGINS: ["openai"]}
    assert machine.keys("opencode", model="openai/gpt-5") == {LOGINS: ["openai"]}
    assert machine.find("opencode", model="anthropic/claude-opus-4-6") == []


def test_a_key_in_any_configuration_is_found(machine: FakeMachine) -> None:
    places = [CONFIG, "home/project/opencode.jsonc", "home/opencode.json", "home/project/.opencode/opencode.json"]
    for place in places:
        machine.write(place, KEYED)

    assert machine.keys("opencode") == {place: ["provider.openai.options.apiKey"] for place in places}


def test_a_key_in_a_header_of_a_provider_or_its_model_is_found(machine: FakeMachine) -> None:
    header = {"Authorization": "Bearer sk-1", "HTTP-Referer": "https://example.org"}
    provider = {"options": {"headers": header}, "models": {"gpt-5": {"headers": {"x-api-key": "sk-1"}}}}
    machine.write(CONFIG, {"provider": {"openai": provider}})

    keys = ["provider.openai.options.headers.Authorization", "provider.openai.models.gpt-5.headers.x-api-key"]
    assert machine.keys("opencode") == {CONFIG: keys}
    own = metered("openai")
    assert machine.find("opencode", own, environ={"WORK_KEY": "sk-1"}) == []
