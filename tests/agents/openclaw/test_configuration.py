"""OpenClaw's configuration, which is JSON5, and its env files."""

from tests.agents.fake_machine import FakeMachine, metered

CONFIG = "home/.openclaw/openclaw.json"
KEYED = {"models": {"providers": {"openai": {"apiKey": "sk-1", "headers": {"X-Api-Key": "sk-1", "X-Name": "me"}}}}}
KEYS = ["models.providers.openai.apiKey", "models.providers.openai.headers.X-Api-Key"]
JSON5 = """\
// written by hand: keys have no quotes
{
  models: { providers: { openai: { baseUrl: 'http://a/v1', apiKey: 'sk-1', }, }, },
  agents: { defaults: { model: { primary: "openai/gpt-5" } } }, /* apiKey: "no" */
}
"""


def test_a_key_in_the_configuration_is_found(machine: FakeMachine) -> None:
    machine.write(CONFIG, KEYED)

    assert machine.keys("openclaw") == {CONFIG: KEYS}
    assert machine.keys("openclaw", model="openai/gpt-5") == {CONFIG: KEYS}
    assert machine.find("openclaw", model="anthropic/claude-opus-4-6") == []
    assert machine.find("openclaw", metered("openai"), environ={"WORK_KEY": "sk-1"}) == []


def test_a_configuration_in_json5_is_read(machine: FakeMachine) -> None:
    machine.write(CONFIG, JSON5)

    assert machine.keys("openclaw") == {CONFIG: KEYS[:1]}
    assert machine.find("openclaw", model="anthropic/claude-opus-4-6") == []


def test_a_name_of_a_variable_is_no_key(machine: FakeMachine) -> None:
    machine.write(CONFIG, {"models": {"providers": {"openai": {"apiKey": "${OPENAI_API_KEY}"}}}})

    assert machine.find("openclaw") == []


def test_keys_in_variables_of_the_configuration_and_of_env_files_are_found(machine: FakeMachine) -> None:
    machine.write(CONFIG, {"env": {"OPENAI_API_KEY": "sk-1", "vars": {"XAI_API_KEY": "sk-2"}, "LOG": "x"}})
    machine.write("home/.openclaw/.env", "GROQ_API_KEY=sk-3\nLANG=C\n")
    machine.write("home/project/.env", "OPENROUTER_API_KEY=sk-4\n")

    assert machine.keys("openclaw") == {
        CONFIG: ["env.OPENAI_API_KEY", "env.vars.XAI_API_KEY"],
        "home/project/.env": ["OPENROUTER_API_KEY"],
        "home/.openclaw/.env": ["GROQ_API_KEY"],
    }
