"""`top` in a real terminal, next to a real engine."""

from tests.cli.conftest import Workspace, finish
from tests.cli.terminal import on_terminal


def test_it_is_drawn_next_to_an_engine_and_its_keys_steer_it(workspace: Workspace) -> None:
    script = r"printf '\033]0;owned\007\033[2J'; while [ ! -e go ]; do sleep 0.05; done"
    engine = workspace.start("run", workspace.plan(script, "a", "b", head="max_sessions = 1"))

    with on_terminal(workspace, "top") as terminal:
        terminal.wait_for(lambda text: "docs/a" in text and "running" in text and "● leading" in text)
        terminal.type(b"p")
        terminal.wait_for(lambda text: "docs paused" in text)
        paused = workspace.run_json("list")["campaigns"][0]["state"]
        terminal.type(b"p")
        terminal.wait_for(lambda text: "docs paused" not in text)
        (workspace.folder / "go").touch()
        terminal.wait_for(lambda text: "done 2/2" in text)
        terminal.type(b"q")
        code = terminal.wait_end()

    assert paused == "paused"
    assert code == 0
    assert b"owned" not in terminal.raw
    assert finish(engine)[0] == 0
