"""No value of a unit runs as a program in an argument that is code."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.agents.launch import unsafe_placeholders

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


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "echo {id}"),
        ("/bin/bash", "-lc", "echo '{id}'"),
        ("env", "A=1", "dash", "-e", "-c", 'echo "{id}"'),
        ("timeout", "5", "zsh", "-xc", "out/{id}.txt"),
        ("python3", "-c", "print('{id}')"),
        ("python3", "-c", "{id}"),
        ("perl", "-ne", 'print "{id}"'),
        ("perl", "-e'{id}'"),
        ("node", "-p", "'{id}'"),
        ("node", "--eval={id}"),
        ("ruby", "-e", "puts '{id}'"),
        ("php", "-r", "echo '{id}';"),
        ("Rscript", "-e", "'{id}'"),
        ("su", "nobody", "-c", "echo {id}"),
        ("script", "-qc", "echo {id}", "/dev/null"),
        ("flock", "lock", "-c", "echo {id}"),
        ("env", "-S", "echo {id}"),
        ("xargs", "sh", "-c", "echo {id}"),
        ("psql", "--command", "select '{id}'"),
        ("awk", 'BEGIN { print "{id}" }'),
        ("sed", "-n", "s/a/{id}/p"),
        ("ssh", "box", "echo", "{id}"),
        ("timeout", "5", "ssh", "-p", "22", "box", "echo {id}"),
        ("watch", "echo {id}"),
        ("tmux", "new-session", "-d", "agent {id}"),
        ("sh", "-c", 'eval "$1"', "sh", "{id}"),
        ("sh", "-c", 'sh -c "$1"', "sh", "{id}"),
        ("sh", "-c", '"$@"', "sh", "sh", "-c", "{id}"),
        ("perl", "-e", "system $ARGV[0]", "{id}"),
        ("sh", "-c", 'ssh box "$1"', "sh", "{id}"),
        ("python3", "-c", "import os, sys; os.system(sys.argv[1])", "{id}"),
        ("python3", "-c", "import sys; exec(sys.argv[1])", "{id}"),
    ],
)
def test_a_value_that_means_something_to_a_program_is_refused_in_its_code(command: tuple[str, ...]) -> None:
    refused = [unsafe_placeholders(command, {"id": value, "prompt": value}) for value in DANGEROUS]

    assert refused == [["id"]] * len(DANGEROUS)


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", 'echo "$1"', "sh", "{id}"),
        ("sh", "-c", "{prompt}"),
        ("python3", "-c", "import sys; print(sys.argv[1])", "{id}"),
        ("sh", "-c", 'exec agent "$1" > "out/$2"', "sh", "{prompt}", "{id}"),
        ("bash", "-c", '. venv/bin/activate; eval "$(setup)"; ./system.sh "$1" | grep -e "$2"', "sh", "{id}", "{id}"),
        ("sh", "-c", 'cd out && "$@"', "sh", "agent", "{id}"),
        ("sh", "-c", 'for each; do echo "$each"; done', "sh", "{id}"),
        ("sh", "script.sh", "{id}"),
        ("python", "-m", "tool", "--name={id}", "out/{id}.txt"),
        ("claude", "-c", "{prompt}"),
        ("claude", "-p", "Be brief: {prompt}", "--resume", "{session_id}"),
        ("tool", "watch", "{prompt}", "--message", "about {id}"),
    ],
)
def test_values_outside_a_script_and_prompts_that_are_the_script_are_free(command: tuple[str, ...]) -> None:
    assert unsafe_placeholders(command, {"id": "x; id", "prompt": "x; id"}) == []


@pytest.mark.parametrize(
    "command", [("python3", "-c", "print('{id}')"), ("ssh", "box", "echo", "{id}"), ("awk", '{ print "{id}" }')]
)
def test_a_value_of_safe_characters_is_filled_in_everywhere(command: tuple[str, ...]) -> None:
    assert unsafe_placeholders(command, {"id": "src/a_b-1.py"}) == []


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
def test_an_accepted_value_stays_text_in_every_kind_of_quotes(value: str) -> None:
    script = """printf '%s\\n' "{id}" '{id}'"""
    if unsafe_placeholders(("sh", "-c", script), {"id": value}):
        return

    ran = subprocess.run(["sh", "-c", script.replace("{id}", value)], capture_output=True, text=True, check=True)

    assert (ran.stdout, ran.stderr) == (f"{value}\n{value}\n", "")
