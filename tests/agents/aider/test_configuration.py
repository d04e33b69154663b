"""aider has no login: any key that it finds is billed."""

from tests.agents.fake_machine import FakeMachine


def test_keys_in_env_files_and_in_its_configuration_are_found(machine: FakeMachine) -> None:
    machine.write("home/.env", "OPENAI_API_KEY=sk-1\nDEBUG=1\n")
    machine.write("home/project/.aider.conf.yml", "model: sonnet\nanthropic-api-key: sk-2\n# openai-api-key: x\n")

    assert machine.keys("aider") == {
        "home/.env": ["OPENAI_API_KEY"],
        "home/project/.aider.conf.yml": ["anthropic-api-key"],
    }
