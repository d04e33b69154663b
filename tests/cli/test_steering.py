"""Looking in and steering without an engine: all of it works on the store, and takes effect when one starts."""

import json
import time

import msgspec
import pytest
from tests.cli.conftest import Place, decode_lines, finish, read_until

from paceline.cli.wiring import open_home
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.events import Event
from paceline.store import OutcomeRecord

UNIT_FIELDS = {
    "id", "campaign", "state", "attempts", "tries", "parks", "resume_at", "reason", "account", "session_id",
    "started_at", "ended_at", "exit_code",
}  # fmt: skip
WAITING = "echo {id} >> starts; while [ ! -e go ]; do sleep 0.05; done"


def park(unit_count: int = 1, *, reason: str = "the quota window is spent", until: float | None = None) -> None:
    """As an engine would: claimed, and settled as parked."""
    now = time.time()
    with open_home() as home:
        names = [f"park-{number}" for number in range(unit_count)]
        units = home.store.claim_units("docs", "", unit_count, attempt_ids=names, lease_until=now + 60, now=now)
        for unit in units:
            outcome = AttemptOutcome(ending="parked", reason=reason, resume_at=until or now + 3600)
            transition = transition_after(unit.counters, outcome, Policy(), now)
            home.store.record_outcomes(
                [OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition)], now=now
            )


# -- adding ----------------------------------------------------------------------------------------


def test_adding_twice_adds_once_and_changed_units_are_named_and_left(place: Place) -> None:
    plan = place.plan("true", "a", "b")

    assert place.ask("add", plan) == {"campaign": "docs", "added": 2, "unchanged": 0, "changed": [], "updated": []}
    plan.write_text(plan.read_text().replace('"do b"', '"do it better"'))
    again = place.give("add", plan)
    updated = place.ask("add", plan, "--update")

    assert "1 differ from the store and were not updated: docs/b" in again.stdout
    assert updated["updated"] == ["docs/b"]


def test_without_an_engine_a_command_says_when_it_takes_effect(place: Place) -> None:
    added = place.give("add", place.plan("true", "a"))
    paused = place.give("pause", "docs")

    assert "No engine runs now" in added.stdout
    assert "No engine runs now" in paused.stdout


# -- looking ---------------------------------------------------------------------------------------


def test_a_unit_has_exactly_the_fields_of_the_contract(place: Place) -> None:
    place.give("run", place.plan("true", "a"))

    (unit,) = place.ask("units", "docs")["units"]

    assert set(unit) == UNIT_FIELDS
    assert (unit["id"], unit["state"], unit["account"], unit["exit_code"]) == ("docs/a", "done", None, 0)


def test_an_empty_home_tells_where_to_begin(place: Place) -> None:
    assert "paceline run PLAN" in place.give("list").stdout
    assert place.ask("list") == {"campaigns": []}
    assert place.ask("status")["engine"]["state"] == "stopped"


def test_the_list_counts_units_by_what_they_do(place: Place) -> None:
    place.give("add", place.plan("true", "a", "b", "c"))
    park()

    (campaign,) = place.ask("list")["campaigns"]
    row = place.give("list").stdout.splitlines()[1].split()

    assert (campaign["units"]["todo"], campaign["units"]["parked"]) == (3, 1)
    assert row == ["docs", "active", "0", "command", "0/3", "0", "2", "1", "0"]


def test_units_are_chosen_by_state_and_number(place: Place) -> None:
    place.give("add", place.plan("true", "a", "b", "c"))
    park()

    def ids(*options: str) -> list[str]:
        return [unit["id"] for unit in place.ask("units", "docs", *options)["units"]]

    assert ids("--state", "parked") == ["docs/a"]
    assert ids("--state", "waiting") == ["docs/b", "docs/c"]
    assert ids("--state", "todo", "--limit", "2") == ["docs/a", "docs/b"]
    assert "2 of 3 units" in place.give("units", "docs", "--limit", 2).stdout


def test_the_status_tells_the_next_resume(place: Place) -> None:
    place.give("add", place.plan("true", "a", "b"))
    park(until=time.time() + 7200)

    status = place.ask("status")

    assert status["pool"] == {"sessions": 4, "running": 0, "waiting": 1, "parked": 1}
    assert status["next_resume_at"] == pytest.approx(time.time() + 7200, abs=60)
    assert "next resume" in place.give("status").stdout


def test_events_come_as_lines_and_as_json(place: Place) -> None:
    place.give("run", place.plan("true", "a", "b"))

    names = [event["name"] for event in decode_lines(place.give("events", "--json").stdout)]
    of_one = decode_lines(place.give("events", "--unit", "a", "--json").stdout)
    last = place.give("events", "--limit", 1).stdout

    assert names[0] == "control.campaigns"
    assert names.count("unit.done") == 2
    assert [event["name"] for event in of_one] == ["unit.started", "unit.done"]
    assert "engine stopped" in last
    assert len(last.splitlines()) == 1


def test_an_event_that_names_a_time_beyond_the_calendar_is_a_line_as_any_other(place: Place) -> None:
    with open_home() as home:
        home.store.append_events(
            [Event(at=time.time(), name="window.closed", scope="umans", fields={"resets_at": 1e18})]
        )

    told = place.give("events").stdout

    assert "window closed umans: resets at never" in told


def test_fractions_in_events_are_as_long_as_people_read_them(place: Place) -> None:
    now = time.time()
    lost = Event(at=now, name="slot.lost", scope="umans", fields={"reclaimed_at": now - 2e-5})
    granted = Event(at=now, name="slot.granted", scope="umans", fields={"waited": 3.3036794662475586})
    with open_home() as home:
        home.store.append_events([lost, granted])

    first, second = place.give("events").stdout.splitlines()

    assert first.endswith("(0 s ago)")
    assert second.endswith("slot granted umans: waited 3.3")


def test_followed_events_come_as_they_happen(place: Place) -> None:
    plan = place.plan("true", "a")
    follower = place.start("events", "--follow")

    place.give("run", plan)

    assert "done docs/a" in read_until(follower, "engine stopped")


def test_logs_show_the_last_try_and_pass_bytes_to_a_pipe(place: Place) -> None:
    place.give("run", place.plan(r"printf 'out \033[31mred\n'; echo err >&2", "a"))

    code, out, _ = finish(place.start("logs", "a"))

    assert code == 0
    assert "\x1b[31mred" in out
    assert place.ask("logs", "docs/a")["stderr"] == "err\n"
    assert place.give("logs", "a", "--channel", "stderr").stdout == "err\n"


def test_logs_of_what_never_ran_say_so(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    assert "has not been started yet" in place.give("logs", "a", code=2).stderr


def test_hostile_text_in_a_reason_cannot_steer_the_terminal(place: Place) -> None:
    place.give("run", place.plan(r"printf '\033]0;owned\007\033[2Jbad'; exit 1", "a", head="max_attempts = 1"), code=1)

    for command in (["units", "docs"], ["why", "a"], ["events"], ["list"]):
        shown = place.give(*command).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown


# -- why -------------------------------------------------------------------------------------------


def test_why_without_an_engine_says_so_and_what_to_do(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    why = place.ask("why", "a")

    assert (why["state"], why["reason"], why["hint"]) == ("waiting", "no_engine", "paceline run PLAN")


def test_why_of_a_parked_unit_has_its_reason_and_time(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    park(until=time.time() + 600)

    why = place.ask("why", "docs/a")

    assert (why["state"], why["reason"], why["detail"]) == ("parked", "parked", "the quota window is spent")
    assert why["until"] == pytest.approx(time.time() + 600, abs=60)
    assert "until" in place.give("why", "docs/a").stdout


def test_why_of_a_paused_campaign_names_the_command_that_goes_on(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    place.give("pause", "--all")

    assert place.ask("why", "a")["hint"] == "paceline resume docs"


def test_why_of_a_quarantined_unit_has_its_last_words_and_retry_mends_it(place: Place) -> None:
    plan = place.plan("test -e mended || { echo broken; exit 2; }", "a", head="max_attempts = 1")
    place.give("run", plan, code=1)

    why = place.ask("why", "a")
    (place.folder / "mended").touch()
    retried = place.ask("retry", "docs")
    place.give("run", plan)

    assert why["detail"] == "failed once, the last time with: exit code 2: broken"
    assert "paceline retry docs" in why["hint"]
    assert retried["retried"] == 1


def test_why_of_a_waiting_unit_is_what_the_engine_last_said(place: Place) -> None:
    engine = place.start("run", place.plan(WAITING, "a", "b", head="max_sessions = 1"))
    read_until(engine, "waits docs")

    waiting, running = place.ask("why", "b"), place.ask("why", "a")
    (place.folder / "go").touch()
    finish(engine)

    assert (waiting["reason"], waiting["scope"]) == ("limit", "campaign:docs")
    assert waiting["detail"] == "campaign:docs at its limit (1/1)"
    assert (running["state"], running["detail"]) == ("running", "its session runs on this machine")


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["why", "docs/aa"], 'did you mean "docs/a'),
        (["why", "nothing-like-it"], "paceline units CAMPAIGN"),
        (["units", "dcos"], 'did you mean "docs"?'),
        (["pause", "dosc"], 'did you mean "docs"?'),
        (["pause"], "--all"),
        (["resume", "docs", "--all"], "--all"),
        (["cancel", "zzz"], "there are: docs, more"),
        (["why", "same"], "docs/same, more/same"),
        (["pool", "0"], "0"),
        (["pool", "many"], "whole number"),
        (["limit", "anthropic", "1.5"], "1.5"),
        (["limit", "a//b", "1"], "a//b"),
        (["limit", "campaign:dosc", "1"], 'did you mean "docs"?'),
        (["cooldown", "anthropic", "soon"], "soon"),
        (["cooldown", "sessions", "1s"], "has no cooldown"),
        (["restore", "antropic"], "anthropic"),
        (["units", "docs", "--state", "sleeping"], "sleeping"),
    ],
)
def test_wrong_names_and_values_exit_with_2_and_a_suggestion(place: Place, wrong: list[str], said: str) -> None:
    place.give("add", place.plan("true", "a1", "same"))
    place.give("add", place.plan("true", "x", "same", name="more"))

    assert said in place.give(*wrong, code=2).stderr


# -- campaigns and capacity --------------------------------------------------------------------------


def test_pause_and_resume_all(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    place.give("add", place.plan("true", "x", name="more"))

    assert place.ask("pause", "--all")["campaigns"] == ["docs", "more"]
    assert place.ask("resume", "docs")["campaigns"] == ["docs"]
    assert place.ask("resume", "--all")["campaigns"] == ["more"]


def test_cancel_is_for_good(place: Place) -> None:
    plan = place.plan("true", "a", "b")
    place.give("add", plan)

    assert place.ask("cancel", "docs")["cancelled"] == 2
    for command in (["resume", "docs"], ["retry", "docs"], ["run", plan], ["add", plan]):
        assert "cancelled" in place.give(*command, code=2).stderr


def test_a_deleted_campaign_is_gone_and_its_name_is_free(place: Place) -> None:
    plan = place.plan("true", "a", "b")
    place.give("add", plan)
    place.give("cancel", "docs")
    refused = place.give("add", plan, code=2)

    unsure = place.give("delete", "docs", code=2)
    answer = place.ask("delete", "docs", "--yes")

    assert "delete it to use its name again" in refused.stderr
    assert "give --yes if you are sure" in unsure.stderr
    assert answer == {"ok": True, "campaign": "docs", "engine": "stopped"}
    assert place.ask("list") == {"campaigns": []}
    assert place.ask("add", plan)["added"] == 2


def test_a_campaign_with_a_running_unit_is_not_deleted(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    with open_home() as home:
        home.store.claim_units("docs", "", 1, attempt_ids=["x"], lease_until=time.time() + 60, now=time.time())

    refused = place.give("delete", "docs", "--yes", code=2)

    assert "units of 'docs' are running: cancel it first" in refused.stderr
    assert len(place.ask("list")["campaigns"]) == 1


def test_cancel_without_an_engine_ends_what_still_runs(place: Place) -> None:
    engine = place.start("run", place.plan(WAITING, "a"))
    read_until(engine, "started docs/a")
    engine.kill()
    finish(engine)
    (status,) = place.home.glob("spool/*/status.json")

    assert place.ask("cancel", "docs")["running"] == ["docs/a"]

    deadline = time.monotonic() + 20
    while json.loads(status.read_text())["phase"] == "running":
        assert time.monotonic() < deadline


def test_limits_say_where_each_comes_from(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.write("paceline.toml", '[limits]\n"acme" = 7\n"other" = 3')
    monkeypatch.setenv("PACELINE_POOL", "9")
    place.give("add", place.plan("true", "a", head="max_sessions = 2"))
    place.give("limit", "other", "none")

    rows = {row["scope"]: row for row in place.ask("limits")["limits"]}

    assert (rows["sessions"]["configured"], rows["sessions"]["source"]) == (9, "environment")
    assert (rows["runs"]["configured"], rows["runs"]["source"]) == (50, "shipped")
    assert (rows["acme"]["effective"], rows["acme"]["source"]) == (7, str(file))
    assert (rows["other"]["effective"], rows["other"]["source"]) == (None, "live")
    assert (rows["campaign:docs"]["effective"], rows["campaign:docs"]["source"]) == (2, "plan")


def test_a_limit_set_live_is_kept_by_the_next_engine_and_can_be_given_back(place: Place) -> None:
    place.give("pool", 2)
    place.give("limit", "campaign:docs", 1, code=2)
    place.give("run", place.plan("true", "a"))

    kept = {row["scope"]: row for row in place.ask("limits")["limits"]}
    place.give("limit", "sessions", "default")
    given_back = {row["scope"]: row for row in place.ask("limits")["limits"]}

    assert (kept["sessions"]["effective"], kept["sessions"]["source"]) == (2, "live")
    assert (given_back["sessions"]["effective"], given_back["sessions"]["source"]) == (4, "shipped")


def test_a_held_account_is_told_and_restored(place: Place) -> None:
    place.write("paceline.toml", '[accounts.mine]\nprovider = "acme"\nkind = "subscription"')
    script = "echo 'Invalid API key · Please run /login' >&2; exit 1"
    plan = place.plan(f"test -e mended || {{ {script}; }}", "a", head='accounts = ["mine"]')
    engine = place.start("run", plan)
    read_until(engine, "held acme/mine")

    held = next(row for row in place.ask("limits")["limits"] if row["scope"] == "acme/mine")
    (place.folder / "mended").touch()
    place.give("restore", "acme/mine")
    code, out, _ = finish(engine)

    assert held["held"]
    assert "paceline restore acme/mine" in held["state"]
    assert (code, "docs: 1 done" in out) == (0, True)


def test_a_campaigns_own_limit_is_kept_with_the_campaign(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    place.give("limit", "campaign:docs", 3)

    assert place.ask("list")["campaigns"][0]["max_sessions"] == 3


def test_a_cooldown_is_learnt_where_one_says_auto(place: Place) -> None:
    answer = place.ask("cooldown", "acme", "auto")
    with open_home() as home:
        cooldowns = home.offline_state(time.time()).governor.cooldowns()

    assert answer == {"ok": True, "scope": "acme", "seconds": "auto", "engine": "stopped"}
    assert cooldowns["acme"] == "auto"


def test_cooldown_is_stored(place: Place) -> None:
    place.give("cooldown", "acme", "350ms")

    events = decode_lines(place.give("events", "--json").stdout)

    assert events[-1]["fields"] == {"seconds": 0.35}
    assert msgspec.json.encode(events[-1]["scope"]) == b'"acme"'


# -- preview ---------------------------------------------------------------------------------------


def test_a_preview_starts_and_stores_nothing(place: Place) -> None:
    plan = place.plan("echo {id} >> ends", *"abcdef", head="max_sessions = 2")

    preview = place.ask("preview", plan)

    assert preview["starts"] == ["docs/a", "docs/b"]
    assert preview["waiting"] == 4
    assert preview["waits"][""]["detail"] == "campaign:docs at its limit (2/2)"
    assert place.ask("list")["campaigns"] == []
    assert not (place.folder / "ends").exists()


def test_a_preview_counts_what_runs_and_what_is_done(place: Place) -> None:
    plan = place.plan("echo {id}", "a", "b", "c", "d")
    place.give("add", plan)
    park()

    preview = place.ask("preview", plan)
    said = place.give("preview", plan).stdout

    assert (preview["parked"], preview["starts"]) == (1, ["docs/b", "docs/c", "docs/d"])
    assert "1 parked already" in said


def test_a_preview_of_a_plan_that_was_never_added_goes_flat_out_towards_its_deadline(place: Place) -> None:
    preview = place.ask("preview", place.plan("true", *"abc", head="deadline = 2099-01-01T00:00:00Z"))
    assert (preview["units"], len(preview["starts"])) == (3, 3)


def test_a_preview_keeps_to_the_pace_of_a_deadline(place: Place) -> None:
    place.give("run", place.plan("true", "a", "b"))

    preview = place.ask("preview", place.plan("true", *"abcdef", head="deadline = 2099-01-01T00:00:00Z"))

    assert preview["starts"] == ["docs/c"]
    waits = preview["waits"][""]
    assert (waits["reason"], waits["scope"]) == ("pacing", "campaign:docs")
    assert waits["detail"].endswith("and 1 session at a time makes it")


def test_a_preview_without_any_limit_starts_everything(place: Place) -> None:
    place.write("paceline.toml", '[pool]\nsessions = "none"')

    assert len(place.ask("preview", place.plan("true", *(f"u{n}" for n in range(40))))["starts"]) == 40


def test_a_preview_of_a_paused_campaign_starts_nothing(place: Place) -> None:
    plan = place.plan("true", "a")
    place.give("add", plan)
    place.give("pause", "docs")

    assert place.ask("preview", plan)["starts"] == []
