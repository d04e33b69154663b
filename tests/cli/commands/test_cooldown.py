"""`cooldown`: seconds, or learned."""

import time

import msgspec
from tests.cli.conftest import Workspace, decode_lines

from paceline.daemon.home import open_home
from paceline.engine.command_log import person


def test_a_cooldown_is_learnt_where_one_says_auto(workspace: Workspace) -> None:
    answer = workspace.run_json("cooldown", "acme", "auto")
    with open_home() as home:
        cooldowns = home.offline_state(time.time()).governor.cooldowns()

    assert answer == {"ok": True, "scope": "acme", "seconds": "auto", "engine": "stopped"}
    assert cooldowns["acme"] == "auto"


def test_cooldown_is_stored(workspace: Workspace) -> None:
    workspace.run("cooldown", "acme", "350ms")

    events = decode_lines(workspace.run("events", "--json").stdout)

    assert events[-1]["fields"] == {"seconds": 0.35, "by": f"{person()} (cli)"}
    assert msgspec.json.encode(events[-1]["scope"]) == b'"acme"'
