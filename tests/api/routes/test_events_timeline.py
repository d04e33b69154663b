"""`/v1/timeline` of the running daemon: its bars are the units of the store, its levels the Governor's."""

from tests.daemon import Daemon, RunDaemon

from paceline.events import Event


async def test_bars_and_levels_are_those_of_the_store_and_the_governor_while_units_run(daemon: Daemon) -> None:
    daemon.add("docs", "while [ ! -e {id} ]; do sleep 0.05; done", "a", "b", "c")
    await daemon.until(lambda: daemon.counts("docs").running == 3)
    (daemon.home.path.parent / "a").touch()
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    seen = await daemon.get("/v1/timeline?hours=1")

    units = [daemon.unit(f"docs/{name}") for name in "abc"]
    assert [bar["unit"] for bar in seen["sessions"]] == [unit.id for unit in units]
    assert [(bar["started_at"], bar["ended_at"]) for bar in seen["sessions"]] == [
        (unit.started_at, unit.ended_at) for unit in units
    ]
    assert [bar["ending"] for bar in seen["sessions"]] == ["done", None, None]
    assert seen["to"] - seen["from"] == 3600.0
    assert seen["left_out"] == {"sessions": 0, "marks": 0, "series": 0}
    (points,) = [each["points"] for each in seen["series"] if each["scope"] == "sessions"]
    status = daemon.engine.limiter.scope_status("sessions")
    assert status is not None
    assert points[-1] == {"at": seen["to"], "in_flight": 2, "limit": status.limit}
    assert status.in_flight == 2


async def test_a_restart_draws_the_same_picture_again(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon:
        daemon.add("docs", "exit 0", "a", "b")
        await daemon.until(lambda: daemon.counts("docs").done == 2)
        for limit in (4, 3, 2):
            await daemon.ask("PUT", "/concurrency/limits/umans", {"limit": limit})
        await daemon.until(lambda: daemon.store.events(limit=1000)[-1].event.name == "scope.limit_set")
        before = await daemon.get("/v1/timeline")
    async with run_daemon() as daemon:
        after = await daemon.get("/v1/timeline")

        assert after["sessions"] == before["sessions"]
        assert [bar["ending"] for bar in after["sessions"]] == ["done", "done"]
        steps = [mark for mark in after["marks"] if mark["scope"] == "umans"]
        assert [mark["detail"] for mark in steps] == ["limit set from 4 to 3", "limit set from 3 to 2"]


async def test_a_long_history_is_read_whole_before_it_is_shown(run_daemon: RunDaemon) -> None:
    async with run_daemon() as daemon:
        daemon.add("docs", "sleep 60", "a")
        await daemon.until(lambda: daemon.counts("docs").running == 1)
        at = (daemon.unit("docs/a").started_at or 0.0) - 3000.0
        tries = [
            Event(name, at + number + len(name) / 100, scope, "docs/a")
            for number in range(1500)
            for name, scope in (("unit.started", "agent:command"), ("unit.failed", None))
        ]
        daemon.store.append_events(tries)
    async with run_daemon() as daemon:
        seen = await daemon.get("/v1/timeline?hours=2")

        assert len([bar for bar in seen["sessions"] if bar["ending"] == "failed"]) == 1500
        assert [bar["unit"] for bar in seen["sessions"] if bar["ended_at"] is None] == [
            unit.id for unit in daemon.store.running_units()
        ]


async def test_hours_without_sense_are_refused_and_named(daemon: Daemon) -> None:
    for hours in ("0", "-1", "25", "nan", "inf", "soon", ""):
        body = await daemon.get(f"/v1/timeline?hours={hours}", code=400)
        assert (body["error"], body["detail"].partition(":")[0]) == ("invalid", "hours")
