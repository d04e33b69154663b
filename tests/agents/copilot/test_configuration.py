"""Copilot bills a key only where a variable says so."""

from tests.agents.fake_machine import FakeMachine, metered

VARIABLE = "COPILOT_PROVIDER_API_KEY"


def test_a_key_of_ones_own_is_found_and_the_accounts_own_is_fine(machine: FakeMachine) -> None:
    assert machine.keys("copilot", None, environ={VARIABLE: "sk-1"}) == {"the environment": [VARIABLE]}
    assert machine.find("copilot", metered("github"), environ={"WORK_KEY": "sk-own"}) == []
    assert machine.find("copilot") == []
