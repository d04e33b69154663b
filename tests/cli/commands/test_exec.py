"""`paceline exec`: any command inside a slot, whoever decides about slots just now."""

import pytest
from tests.cli.conftest import Place, finish, lines_of, read_until
from tests.cli.terminal import COLUMNS, ROWS, on_terminal
from tests.executors.conftest import is_gone, until

GATED = "echo {0} >> starts; echo {0} runs; while [ ! -e {0}.go ]; do sleep 0.05; done; echo {0} >> ends"


def test_the_exit_code_and_output_are_the_commands(place: Place) -> None:
    code, out, err = finish(place.start("exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7"))

    assert (code, out, err) == (7, "out\n", "err\n")


def test_options_after_the_command_are_its_own(place: Place) -> None:
    assert finish(place.start("exec", "--", "echo", "--json", "-x"))[1] == "--json -x\n"


def test_a_program_that_is_not_there_is_127(place: Place) -> None:
    code, _, err = finish(place.start("exec", "--", "no-such-program"))

    assert code == 127
    assert "no-such-program" in err


def test_it_waits_for_its_place_and_says_why(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    first = place.start("exec", "--", "sh", "-c", GATED.format("a"))
    read_until(first, "a runs")

    second = place.start("exec", "--", "sh", "-c", GATED.format("b"))
    assert second.stderr is not None
    assert "sessions at its limit (1/1)" in second.stderr.readline()
    assert lines_of(place.folder / "starts") == ["a"]
    (place.folder / "a.go").touch()
    (place.folder / "b.go").touch()

    assert finish(first)[0] == finish(second)[0] == 0
    assert lines_of(place.folder / "ends") == ["a", "b"]


def test_an_engine_takes_over_and_counts_what_is_held(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    held = place.start("exec", "--", "sh", "-c", GATED.format("a"))
    read_until(held, "a runs")

    engine = place.start("run", place.plan("echo unit >> ends", "u"))
    read_until(engine, "waits docs: sessions at its limit (1/1)")
    (place.folder / "a.go").touch()

    assert finish(engine)[0] == finish(held)[0] == 0
    assert lines_of(place.folder / "ends") == ["a", "unit"]


def test_one_that_was_killed_gives_its_place_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_POOL", "1")
    first = place.start("exec", "--", "sh", "-c", "echo runs; exec sleep 60")
    read_until(first, "runs")
    first.kill()
    first.wait()

    assert finish(place.start("exec", "--", "echo", "next"))[1] == "next\n"


def test_one_that_was_killed_takes_its_command_with_it(place: Place) -> None:
    first = place.start("exec", "--", "sh", "-c", "echo pid $$; exec sleep 60")
    pid = int(read_until(first, "pid").split()[-1])
    first.kill()
    first.wait()

    until(lambda: is_gone(pid))


def test_a_command_that_meets_a_limit_is_run_again(place: Place) -> None:
    message = "HTTP 429 Too Many Requests: rate limit exceeded, retry after 1 seconds"
    limited = f"echo try >> tries; [ -e again ] && exit 0; touch again; echo '{message}' >&2"

    code, _, err = finish(place.start("exec", "--scope", "acme/me", "--", "sh", "-c", f"{limited}; exit 1"))

    assert code == 0
    assert "it runs again when there is room" in err
    assert "acme/me is paused" in err
    assert lines_of(place.folder / "tries") == ["try", "try"]


def test_a_subscription_is_never_billed_by_a_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    place.write(
        "paceline.toml",
        '[accounts.max-1]\nprovider = "anthropic"\nkind = "subscription"\nenv = { CLAUDE_CONFIG_DIR = "~/.max" }',
    )
    show = 'echo "$CLAUDE_CONFIG_DIR:$ANTHROPIC_API_KEY"'

    _, out, _ = finish(place.start("exec", "--scope", "anthropic/max-1/opus-4-6", "--", "sh", "-c", show))

    assert out == f"{place.folder}/.max:\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scope", "anthropic/max-1"], "add the model"),
        (["--scope", "sessions"], "not a provider path"),
        (["--scope", "a//b"], "a//b"),
        (["--agent", "cluade"], 'did you mean "claude"?'),
    ],
)
def test_wrong_use_starts_nothing(place: Place, options: list[str], said: str) -> None:
    refused = place.give("exec", *options, "--", "touch", "ran", code=2)

    assert said in refused.stderr
    assert not (place.folder / "ran").exists()


def test_exec_gives_its_command_a_terminal(place: Place) -> None:
    script = "test -t 0 && test -t 1 && stty size; printf 'name? '; read name; echo hello $name; exit 5"

    with on_terminal(place, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "name?" in text)
        terminal.type(b"bob\r")
        code = terminal.wait_end()

    assert f"{ROWS} {COLUMNS}" in terminal.text
    assert "hello bob" in terminal.text
    assert code == 5


def test_ctrl_c_is_the_commands_to_answer(place: Place) -> None:
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"

    with on_terminal(place, "exec", "--", "sh", "-c", script) as terminal:
        terminal.wait_for(lambda text: "ready" in text)
        terminal.type(b"\x03")
        code = terminal.wait_end()

    assert "caught" in terminal.text
    assert code == 9
