"""What a unit waits for, in every state that it can be in."""

import msgspec
import pytest
from tests.views.fleets import NOW

from paceline.core import Deferred, Governor, GovernorSettings
from paceline.core.unit_lifecycle import Counters, UnitState
from paceline.core.values.status import LearntLimit
from paceline.hosts.messages import HostPresence, Presence
from paceline.store import Campaign, SqliteStore, Unit, UnitSpec
from paceline.views.why import Why, explain_unit, stored_waits, wait_rows

CAMPAIGN = Campaign(name="docs", accounts=("max-1", "max-2"), created_at=NOW - 100)
UNIT = Unit(id="docs/a", campaign="docs", spec=UnitSpec(id="a"), position=0)
SPENT = Deferred("t1", "window_closed", "anthropic/max-1", "the 5h window is spent", NOW + 600)
FULL = Deferred("t2", "limit", "sessions", "sessions at its limit (4/4)")
WAITS = {"docs max-1": SPENT, "docs max-2": FULL, "gone max-1": FULL}


def explain(
    *, leaderless: str | None = None, campaign: Campaign = CAMPAIGN, trouble: str | None = None, **fields: object
) -> list[Why]:
    unit = msgspec.structs.replace(UNIT, **fields)
    return explain_unit(unit, campaign, WAITS, leaderless=leaderless, trouble=trouble)


def test_a_waiting_unit_has_an_answer_for_each_account() -> None:
    first, second = explain()

    assert first == Why(
        unit="docs/a",
        state="waiting",
        reason="window_closed",
        detail="the 5h window is spent",
        scope="anthropic/max-1",
        since=NOW - 100,
        until=NOW + 600,
        hint=None,
    )
    assert (second.reason, second.scope) == ("limit", "sessions")


def test_a_unit_with_a_conversation_waits_for_the_account_of_that_conversation() -> None:
    (only,) = explain(conversation_id="c1", account="max-2")

    assert (only.reason, only.scope) == ("limit", "sessions")


FRESH = "paceline retry docs/a --fresh starts it again, without its conversation, on "


def test_a_conversation_on_an_account_that_is_closed_can_be_given_up() -> None:
    (waiting,) = explain(conversation_id="c1", account="max-1")
    (parked,) = explain(conversation_id="c1", account="max-1", resume_at=NOW + 600)
    (elsewhere,) = explain(conversation_id="c1", account="max-2")
    (only,) = explain(conversation_id="c1", account="max-1", campaign=msgspec.structs.replace(CAMPAIGN, accounts=()))

    assert (waiting.hint, parked.hint) == (f"{FRESH}max-2", f"{FRESH}max-2")
    assert (elsewhere.hint, only.hint) == (None, None)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("running", "running"),
        ("held", "held"),
        ("quarantined", "quarantined"),
        ("done", "done"),
        ("cancelled", "cancelled"),
    ],
)
def test_other_states_are_their_own_reason(state: UnitState, reason: str) -> None:
    (only,) = explain(state=state)

    assert (only.state, only.reason) == (state, reason)


def test_a_quarantined_unit_says_how_often_it_failed_and_what_to_do() -> None:
    (only,) = explain(state="quarantined", reason="exit code 3", counters=Counters(failures=2))

    assert only.detail == "failed 2 times, the last time with: exit code 3"
    assert only.hint == "paceline logs docs/a shows its last output; paceline retry docs/a runs it again"


def test_a_pause_comes_before_a_park_and_a_park_before_a_missing_engine() -> None:
    paused = msgspec.structs.replace(CAMPAIGN, state="paused")

    reasons = [
        explain(resume_at=NOW + 60, leaderless="home", campaign=paused)[0].reason,
        explain(resume_at=NOW + 60, is_parked=True, leaderless="home")[0].reason,
        explain(resume_at=NOW + 60, leaderless="home")[0].reason,
        explain(leaderless="home")[0].reason,
    ]

    assert reasons == ["paused", "parked", "backing_off", "no_engine"]


def test_a_unit_that_nothing_blocks_starts_with_the_next_pass() -> None:
    (only,) = explain_unit(UNIT, CAMPAIGN, {}, leaderless=None)

    assert (only.reason, only.detail) == (
        "queue_order",
        "nothing blocks it that is known: the next pass decides",
    )


def test_after_a_run_has_ended_a_hold_comes_before_the_missing_engine_unless_it_was_lifted() -> None:
    held = Deferred("t3", "held", "anthropic/max-1", "anthropic/max-1 is held: not logged in")
    waits = {"docs max-1": held, "docs max-2": FULL}
    governor = Governor(GovernorSettings(), now=NOW)
    governor.hold("anthropic/max-1", "not logged in", now=NOW)

    def reasons() -> list[tuple[str, str | None]]:
        statuses = governor.statuses(now=NOW)
        found = explain_unit(UNIT, CAMPAIGN, waits, leaderless="/home/x", statuses=statuses)
        return [(why.reason, why.hint) for why in found]

    before = reasons()
    governor.lift_hold("anthropic/max-1", now=NOW)

    assert before == [("held", "paceline restore anthropic/max-1"), ("no_engine", "paceline run PLAN")]
    assert reasons() == [("no_engine", "paceline run PLAN")]


def test_rows_of_waits_leave_out_campaigns_that_were_deleted() -> None:
    rows = wait_rows(WAITS, [CAMPAIGN])

    assert [(row.campaign, row.account, row.reason) for row in rows] == [
        ("docs", "max-1", "window_closed"),
        ("docs", "max-2", "limit"),
    ]


def test_a_store_without_an_engine_has_no_waits() -> None:
    assert stored_waits(SqliteStore.in_memory()) == {}


def test_accounts_that_wait_for_the_same_thing_are_one_answer() -> None:
    unit = Unit(id="docs/a", campaign="docs", spec=UnitSpec(id="a"), position=0)
    full = Deferred("t", "limit", "sessions", "sessions at its limit (4/4)", None, None)
    waits = {f"docs {account}": full for account in ("max-1", "max-2")}

    (only,) = explain_unit(unit, Campaign(name="docs", accounts=("max-1", "max-2")), waits, leaderless=None)

    assert only.detail == "sessions at its limit (4/4)"


def test_a_unit_whose_work_is_checked_says_so_and_waits_while_its_campaign_is_paused() -> None:
    paused = msgspec.structs.replace(CAMPAIGN, state="paused", pause_reason="the check cannot do its work")
    (checking,) = explain(state="running", phase="checking", started_at=NOW)
    (waiting,) = explain(state="running", phase="checking", started_at=NOW, campaign=paused)
    (working,) = explain(state="running", phase="working", started_at=NOW, campaign=paused)

    assert checking.detail == "its agent has ended well, and its work is being checked"
    assert waiting.detail == "the campaign docs paused itself: the check cannot do its work"
    assert working.detail == "its session runs on this machine"


def test_a_unit_that_waits_for_a_learnt_limit_is_told_what_was_learnt() -> None:
    governor = Governor(GovernorSettings(limits={"sessions": 4}), now=NOW)
    (status,) = [each for each in governor.statuses(now=NOW) if each.scope == "sessions"]
    learnt = LearntLimit(3, "nothing was refused since", 4, 4, NOW - 60.0, 4, NOW + 600.0)
    reduced = msgspec.structs.replace(status, learnt=learnt)

    first, second = explain_unit(UNIT, CAMPAIGN, WAITS, leaderless=None, statuses=[reduced])

    assert (first.reason, first.learnt) == ("window_closed", None)
    assert (second.reason, second.learnt) == ("limit", learnt)


@pytest.mark.parametrize("state", ["todo", "running"])
def test_a_store_that_cannot_be_used_comes_before_all_other_reasons(state: UnitState) -> None:
    (why,) = explain(trouble="the disk is full", state=state)
    (done,) = explain(trouble="the disk is full", state="done")

    said = "nothing starts, and what ends may be recorded only later: the disk is full"
    assert (why.reason, why.detail, done.reason) == ("store_outage", said, "done")


@pytest.mark.parametrize(("presence", "words"), [("joined", "its session runs on"), ("lost", "it may still run")])
def test_a_session_on_a_host_that_does_not_answer_is_not_said_to_run(presence: Presence, words: str) -> None:
    unit = msgspec.structs.replace(UNIT, state="running", account="max-1#box1", phase="working")
    hosts = [HostPresence(name="box1", presence=presence)]

    (only,) = explain_unit(unit, CAMPAIGN, {}, leaderless=None, hosts=hosts)

    assert (only.reason, words in only.detail) == ("running", True)
