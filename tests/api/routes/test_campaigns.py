"""`/v1/campaigns`: added as plan files are, changed, steered and removed; every change is seen at once and kept."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from tests.daemon import PATIENCE_SECONDS, Daemon, RunDaemon

WAITS = "while [ ! -e go-{id} ]; do sleep 0.02; done"
ACCOUNTS = """
[accounts.max-1]
provider = "anthropic"
kind = "subscription"
[accounts.max-2]
provider = "anthropic"
kind = "subscription"
"""


def plan(name: str = "docs", command: str = "true", units: int = 2, **campaign: object) -> dict[str, Any]:
    return {
        "campaign": {"name": name, "command": ["sh", "-c", command], **campaign},
        "unit": [{"id": f"u{number}", "prompt": "do it"} for number in range(units)],
    }


async def test_a_campaign_is_added_runs_and_is_listed(daemon: Daemon) -> None:
    added = await daemon.ask("POST", "/v1/campaigns", plan(priority=5, timeout="30m"), code=201)
    await daemon.until(lambda: daemon.counts("docs").done == 2)
    listed = await daemon.get("/v1/campaigns")

    assert (added["added"], added["unchanged"], added["changed"], added["updated"]) == (2, 0, [], [])
    (view,) = listed["campaigns"]
    assert view.pop("created_at") == added["campaign"]["created_at"]
    assert view == {
        "id": "docs",
        "name": "docs",
        "state": "active",
        "priority": 5,
        "max_sessions": None,
        "strategy": "rush",
        "hosts": [],
        "labels": [],
        "patience": 1800.0,
        "on_long_park": "resume",
        "deadline": None,
        "agent": "command",
        "model": None,
        "accounts": [],
        "max_attempts": 3,
        "timeout": 1800.0,
        "command": ["sh", "-c", "true"],
        "permissions": None,
        "on_denied": "hold",
        "args": [],
        "env": {},
        "env_pass": [],
        "env_strict": False,
        "allow_metered": False,
        "check": [],
        "check_timeout": 600.0,
        "check_rounds": 2,
        "check_prompt": None,
        "commit": True,
        "deliver": "branch",
        "workspace": None,
        "pause_reason": None,
        "units": {"todo": 0, "running": 0, "done": 2, "quarantined": 0, "held": 0, "cancelled": 0, "parked": 0}
        | {"unverified": 0},
        "running": 0,
        "finished": True,
        "throughput": 2,
        "eta": None,
        "quota": None,
    }


async def test_the_environment_and_arguments_of_its_sessions_are_kept_and_changed(daemon: Daemon) -> None:
    body = plan(command=WAITS, args=["x"], env={"LANG": "C"}, env_pass=["GH_*"], on_denied="done", env_strict=True)
    await daemon.ask("POST", "/v1/campaigns", body, code=201)

    changed = await daemon.ask("PATCH", "/v1/campaigns/docs", {"env": {}, "args": ["y"], "allow_metered": True})
    refused = await daemon.ask("PATCH", "/v1/campaigns/docs", {"env": {"API_KEY": "x"}}, code=400)

    assert {key: changed[key] for key in ("args", "env", "env_pass", "on_denied", "env_strict", "allow_metered")} == {
        "args": ["y"],
        "env": {},
        "env_pass": ["GH_*"],
        "on_denied": "done",
        "env_strict": True,
        "allow_metered": True,
    }
    assert "campaign.env sets API_KEY, which looks like a secret" in refused["detail"]


async def test_adding_again_is_harmless_and_update_takes_what_differs(daemon: Daemon) -> None:
    body = plan(command=WAITS)
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    await daemon.ask("POST", "/v1/campaigns", body, code=201)
    body["unit"][1]["prompt"] = "do it better"

    again = await daemon.ask("POST", "/v1/campaigns", body, code=201)
    updated = await daemon.ask("POST", "/v1/campaigns?update=true", body, code=201)

    assert (again["added"], again["unchanged"], again["changed"], again["updated"]) == (0, 1, ["docs/u1"], [])
    assert (updated["changed"], updated["updated"]) == ([], ["docs/u1"])
    assert (await daemon.get("/v1/units/docs/u1"))["prompt"] == "do it better"


async def test_plans_that_come_at_once_for_one_campaign_are_all_added(daemon: Daemon) -> None:
    def part(name: str) -> dict[str, Any]:
        return {**plan(command=WAITS), "unit": [{"id": f"{name}{number}"} for number in range(600)]}

    added = await asyncio.gather(*(daemon.ask("POST", "/v1/campaigns", part(name), code=201) for name in "abc"))

    counts = daemon.counts("docs")
    assert [each["added"] for each in added] == [600, 600, 600]
    assert counts.todo + counts.running == 1_800


async def test_units_come_from_files_too(daemon: Daemon) -> None:
    (daemon.context.folder / "tasks.csv").write_text("id,what\na,first\nb,second\n")
    body = {**plan(command="cat"), "units": {"csv": "tasks.csv", "prompt": "do the {what}"}}

    added = await daemon.ask("POST", "/v1/campaigns", body, code=201)

    assert added["added"] == 4
    assert (await daemon.get("/v1/units/docs/b"))["prompt"] == "do the second"


@pytest.mark.parametrize(
    ("campaign", "detail"),
    [
        ({"priority": "high"}, 'body: campaign.priority = "high": must be a whole number from -100 to 100'),
        ({"max_sessions": 0}, "body: campaign.max_sessions = 0: must be a whole number from 1 to 1000000000"),
        ({"prioritty": 3}, 'body: unknown key campaign.prioritty; did you mean "priority"?'),
        ({"accounts": ["max-3"]}, 'there is no account "max-3"; did you mean "max-'),
        ({"name": "a/b"}, 'body: campaign.name = "a/b": cannot name a campaign'),
        ({"command": None}, "needs an agent"),
        ({"command": ["no-such-program-anywhere"]}, "'no-such-program-anywhere', which is not on your PATH"),
        ({"deadline": "tomorrow"}, "deadline: must be a time with its zone"),
        ({"deadline": 1000}, "is in the past"),
        ({"permissions": "edit"}, "a command has no permissions that Paceline could set"),
        ({"env": {"NPM_TOKEN": "x"}}, "body: campaign.env sets NPM_TOKEN, which looks like a secret"),
        ({"env_pass": ["*"]}, "would pass every secret"),
        ({"deadline": 1e300}, "deadline: must be a time with its zone"),
    ],
)
async def test_a_campaign_is_checked_as_a_plan_file_is(
    run_daemon: RunDaemon, campaign: dict[str, object], detail: str
) -> None:
    async with run_daemon(ACCOUNTS) as daemon:
        body = plan()
        body["campaign"].update(campaign)

        refused = await daemon.ask("POST", "/v1/campaigns", body, code=400)

        assert refused["error"] == "invalid"
        assert detail in refused["detail"]
        assert await daemon.get("/v1/campaigns") == {"campaigns": []}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "campaign: Object missing required field `campaign`"),
        ({"campaign": []}, "campaign: Expected `object`, got `array`"),
        ({"campaign": {}, "untis": []}, "untis: there is no such field"),
        ({"campaign": {"name": "x", "command": ["true"]}}, "there are no units"),
        ({"campaign": {"name": "x", "command": ["true"]}, "unit": [{"id": "../x"}]}, "this id cannot be used"),
        (
            {"campaign": {"name": "x", "command": ["true"]}, "unit": [{"id": "a", "cwd": "nowhere"}]},
            "there is no folder",
        ),
        ({"campaign": {"name": "x", "command": ["true"]}, "unit": [{"id": "a"}, {"id": "a"}]}, "already used"),
    ],
)
async def test_a_body_that_is_no_plan(daemon: Daemon, body: object, detail: str) -> None:
    refused = await daemon.ask("POST", "/v1/campaigns", body, code=400)

    assert detail in refused["detail"]


async def test_a_body_that_is_not_json_or_too_large(daemon: Daemon) -> None:
    text = await daemon.client.post("/v1/campaigns", content="name = 1", headers={"content-type": "application/toml"})
    broken = await daemon.client.post("/v1/campaigns", content="{")
    small = await daemon.client.put("/v1/pool", content=b'{"sessions": 4, "x": "' + b"x" * (1 << 20) + b'"}')

    assert (text.status_code, text.json()["error"]) == (415, "unsupported_media_type")
    assert (broken.status_code, broken.json()["error"]) == (400, "invalid")
    assert (small.status_code, small.json()) == (413, {"error": "too_large", "detail": "the body is too large"})


@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/pool"), ("POST", "/v1/slots")])
async def test_a_body_is_cut_off_while_it_is_read(daemon: Daemon, method: str, path: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield b" " * 65536
            sent += 65536

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await daemon.client.request(method, path, content=endless())
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # the server hangs up on who does not listen

    assert sent < 16 << 20


async def test_adding_can_be_switched_off(run_daemon: RunDaemon) -> None:
    async with run_daemon("[api]\nadd_campaigns = false\n") as daemon:
        refused = await daemon.ask("POST", "/v1/campaigns", plan(), code=403)

        assert refused["error"] == "forbidden"
        assert "add_campaigns" in refused["detail"]
        assert daemon.store.campaigns() == []


async def test_a_campaign_is_paused_resumed_cancelled(daemon: Daemon) -> None:
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    await daemon.until(lambda: daemon.counts("docs").running)

    paused = await daemon.ask("POST", "/v1/campaigns/docs/pause")
    resumed = await daemon.ask("POST", "/v1/campaigns/docs/resume")
    cancelled = await daemon.ask("POST", "/v1/campaigns/docs/cancel")
    await daemon.until(lambda: not daemon.engine.live_sessions())

    assert [each["state"] for each in (paused, resumed, cancelled)] == ["paused", "active", "cancelled"]
    assert cancelled["units"]["cancelled"] == 3
    refused = await daemon.ask("POST", "/v1/campaigns/docs/resume", code=409)
    assert refused == {
        "error": "conflict",
        "detail": "docs is cancelled; `paceline retry docs` undoes that",
    }
    again = await daemon.ask("POST", "/v1/campaigns", plan(), code=409)
    assert "`paceline retry docs` undoes that" in again["detail"]
    retried = await daemon.ask("POST", "/v1/campaigns/docs/retry")
    assert (retried["state"], retried["units"]["todo"]) == ("active", 3)


async def test_all_are_paused_and_resumed(daemon: Daemon) -> None:
    daemon.add("docs", WAITS, "a")
    daemon.add("tests", WAITS, "a")

    assert await daemon.ask("POST", "/v1/pause") == {"campaigns": ["docs", "tests"], "state": "paused"}
    assert (await daemon.get("/v1/status"))["engine"]["state"] == "paused"
    assert await daemon.ask("POST", "/v1/pause") == {"campaigns": [], "state": "paused"}
    assert await daemon.ask("POST", "/v1/resume") == {"campaigns": ["docs", "tests"], "state": "active"}
    assert (await daemon.get("/v1/status"))["engine"]["state"] == "leading"


async def test_quarantined_units_are_tried_again(daemon: Daemon) -> None:
    daemon.add("docs", "test -e mended", "a", max_attempts=1)
    await daemon.until(lambda: daemon.counts("docs").quarantined == 1)
    (daemon.context.folder / "mended").touch()

    retried = await daemon.ask("POST", "/v1/campaigns/docs/retry")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    assert retried["units"]["quarantined"] == 0


async def test_fields_are_changed_at_once_and_kept(run_daemon: RunDaemon) -> None:
    changes = {
        "priority": 7,
        "max_sessions": 3,
        "strategy": "spread",
        "deadline": "2099-12-01T08:00:00Z",
        "max_attempts": 5,
        "timeout": "90s",
        "model": "opus-4-6",
        "accounts": ["max-2"],
    }
    async with run_daemon(ACCOUNTS) as daemon:
        daemon.add("docs", WAITS, "a", state="paused")
        changed = await daemon.ask("PATCH", "/v1/campaigns/docs", changes)
        limit = await daemon.get("/concurrency/limits/campaign:docs")
        emptied = await daemon.ask("PATCH", "/v1/campaigns/docs", {"deadline": None, "timeout": None, "accounts": []})
    async with run_daemon(ACCOUNTS) as daemon:
        kept = await daemon.get("/v1/campaigns/docs")

    expected = {**changes, "deadline": datetime(2099, 12, 1, 8, tzinfo=UTC).timestamp(), "timeout": 90.0}
    assert {name: changed[name] for name in changes} == expected
    assert limit["limit"] == 3
    assert (emptied["deadline"], emptied["timeout"], emptied["accounts"]) == (None, None, [])
    assert {name: kept[name] for name in changes} == {name: emptied[name] for name in changes}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"accounts": ["max-9"]}, 'there is no account "max-9"'),
        ({"priority": 1000}, "must be a whole number from -100 to 100"),
        ({"priority": "7"}, "priority: Expected `int"),
        ({"max_sessions": 0}, "max_sessions: Expected `int` >= 1"),
        ({"name": "other"}, "name: there is no such field"),
        ({"command": ["rm"]}, "command: there is no such field"),
        ({"deadline": "soon"}, "deadline: must be a time with its zone"),
        ({"timeout": "-5s"}, "must be a duration longer than 0"),
    ],
)
async def test_a_change_that_is_none(run_daemon: RunDaemon, changes: object, detail: str) -> None:
    async with run_daemon(ACCOUNTS) as daemon:
        daemon.add("docs", WAITS, "a", state="paused")
        before = daemon.store.campaigns()

        refused = await daemon.ask("PATCH", "/v1/campaigns/docs", changes, code=400)

        assert detail in refused["detail"]
        assert daemon.store.campaigns() == before


async def test_a_campaign_is_removed_but_not_while_it_runs(daemon: Daemon) -> None:
    daemon.add("docs", WAITS, "a", "b", max_sessions=1)
    await daemon.until(lambda: daemon.counts("docs").running == 1)

    refused = await daemon.ask("DELETE", "/v1/campaigns/docs", code=409)
    (daemon.context.folder / "go-a").touch()
    await daemon.until(lambda: daemon.unit("docs/b").state == "running")
    (daemon.context.folder / "go-b").touch()
    await daemon.until(lambda: daemon.counts("docs").done == 2)
    removed = await daemon.ask("DELETE", "/v1/campaigns/docs")

    assert refused["error"] == "conflict"
    assert removed == {"ok": True}
    assert await daemon.get("/v1/campaigns") == {"campaigns": []}
    assert (await daemon.get("/concurrency/limits/campaign:docs", code=404))["error"]


async def test_a_removed_campaign_leaves_neither_prompts_nor_output_behind(daemon: Daemon) -> None:
    daemon.add("docs", "cat; echo answer", "a", "b")
    daemon.add("kept", "cat; echo answer", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 2 and daemon.counts("kept").done == 1)
    kept = daemon.unit("kept/a").attempt_id
    archive = daemon.home.path / "spool" / ".settled"
    await daemon.until(lambda: len(list(archive.glob("*/stdout"))) == 3)

    await daemon.ask("DELETE", "/v1/campaigns/docs")

    assert [folder.name for folder in archive.iterdir()] == [kept]
    assert (await daemon.get("/v1/units/kept/a/log"))["stdout"] == "do aanswer\n"


async def test_a_campaign_that_waits_is_removed_and_the_engine_goes_on(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("long", WAITS, "a")
    await daemon.until(lambda: daemon.counts("long").running == 1)
    daemon.add("docs", "true", "a", "b")
    await daemon.ask("DELETE", "/v1/campaigns/docs")
    daemon.add("tests", "true", "a")
    (daemon.context.folder / "go-a").touch()

    await daemon.until(lambda: daemon.counts("tests").done == 1)

    assert daemon.engine.governor.ruling_limit("campaign:docs") is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/campaigns/dosc"),
        ("PATCH", "/v1/campaigns/dosc"),
        ("DELETE", "/v1/campaigns/dosc"),
        ("POST", "/v1/campaigns/dosc/pause"),
        ("POST", "/v1/campaigns/dosc/resume"),
        ("POST", "/v1/campaigns/dosc/cancel"),
        ("POST", "/v1/campaigns/dosc/retry"),
    ],
)
async def test_a_campaign_that_is_not_there(daemon: Daemon, method: str, path: str) -> None:
    daemon.add("docs", "true", state="paused")

    refused = await daemon.ask(method, path, {} if method == "PATCH" else None, code=404)

    assert refused == {"error": "not_found", "detail": "there is no campaign 'dosc'; did you mean \"docs\"?"}


async def test_names_that_need_quoting(daemon: Daemon) -> None:
    daemon.add("nächtliche Läufe 100%", "true", "a", state="paused")

    for written in ("nächtliche Läufe 100%25", "n%C3%A4chtliche%20L%C3%A4ufe%20100%25"):
        assert (await daemon.get(f"/v1/campaigns/{written}"))["name"] == "nächtliche Läufe 100%"
