"""No value of a unit runs as a program in the script of a shell."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.agents.inline_script import unsafe_placeholders

DANGEROUS = (
    "x; touch pwned",
    "$(id)",
    "`id`",
    "a'b",
    'a"b',
    "a|b",
    "a&b",
    "a\nb",
    "a>b",
    "a\\b",
    "*",
    "~",
    "a#b",
    "!!",
    "a{b,c}",
)


@pytest.mark.parametrize("value", DANGEROUS)
@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "echo {id}"),
        ("/bin/bash", "-lc", "echo '{id}'"),
        ("env", "A=1", "dash", "-e", "-c", 'echo "{id}"'),
        ("timeout", "5", "zsh", "-xc", "out/{id}.txt"),
    ],
)
def test_a_value_that_means_something_to_a_shell_is_refused_in_its_script(command: tuple[str, ...], value: str) -> None:
    assert unsafe_placeholders(command, {"id": value, "prompt": value}) == ["id"]


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", 'echo "$1"', "sh", "{id}"),
        ("sh", "-c", "{prompt}"),
        ("sh", "script.sh", "{id}"),
        ("python", "-m", "tool", "-c", "{id}"),
        ("gcc", "-c", "{id}"),
    ],
)
def test_values_outside_a_script_and_prompts_that_are_the_script_are_free(command: tuple[str, ...]) -> None:
    assert unsafe_placeholders(command, {"id": "x; id", "prompt": "x; id"}) == []


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
def test_an_accepted_value_stays_text_in_every_kind_of_quotes(value: str) -> None:
    script = """printf '%s\\n' "{id}" '{id}'"""
    if unsafe_placeholders(("sh", "-c", script), {"id": value}):
        return

    ran = subprocess.run(["sh", "-c", script.replace("{id}", value)], capture_output=True, text=True, check=True)

    assert (ran.stdout, ran.stderr) == (f"{value}\n{value}\n", "")
