"""`/v1/units`: pages, states, one unit with its why, its history and its output. What agents print stays text."""

import json
import time

import pytest
from tests.daemon import Daemon, RunDaemon

from paceline.testing.store_steps import claim, ended, record

WAITS = "while [ ! -e go ]; do sleep 0.02; done"
UNIT_FIELDS = {
    "id", "campaign", "state", "attempts", "tries", "parks", "resume_at", "reason", "account", "session_id",
    "started_at", "ended_at", "exit_code", "parked", "denials", "warnings", "phase", "agent", "model", "host", "turns",
    "tokens", "cost", "answer", "workspace", "branch", "base", "commit", "files_changed", "lines_added",
    "lines_removed", "checks", "waited_seconds", "parked_seconds", "ran_seconds", "context_tokens", "lost_tokens",
    "lost_tokens_estimated",
}  # fmt: skip


async def ids(daemon: Daemon, query: str) -> list[str]:
    """Of all pages."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await daemon.get(f"/v1/units?{query}{cursor}")
        found += [unit["id"] for unit in page["units"]]
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


async def test_a_unit_has_exactly_the_fields_of_the_contract(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    (unit,) = (await daemon.get("/v1/units"))["units"]

    assert set(unit) == UNIT_FIELDS
    assert (unit["id"], unit["state"], unit["tries"], unit["account"], unit["exit_code"]) == (
        "docs/a",
        "done",
        1,
        None,
        0,
    )


async def test_units_are_paged_and_chosen_by_campaign_and_state(daemon: Daemon) -> None:
    names = [f"u{number}" for number in range(7)]
    daemon.add("docs", "true", *names, state="paused")
    daemon.add("tests", "true", "a", state="paused")
    daemon.park("docs", time.time() + 3600)

    all_docs = [f"docs/{name}" for name in names]
    assert await ids(daemon, "limit=2") == [*all_docs, "tests/a"]
    assert await ids(daemon, "campaign=docs&limit=3") == all_docs
    assert await ids(daemon, "campaign=docs&state=todo") == all_docs
    assert await ids(daemon, "state=parked&limit=1") == ["docs/u0"]
    assert await ids(daemon, "campaign=docs&state=waiting&limit=2") == all_docs[1:]
    assert await ids(daemon, "state=done") == []
    assert len((await daemon.get("/v1/units?state=waiting&limit=3"))["units"]) <= 3


async def test_a_page_of_parked_units_among_many_waiting_ones_is_cut_short_and_goes_on(daemon: Daemon) -> None:
    daemon.add("docs", "true", *(f"u{number}" for number in range(300)), state="paused")
    daemon.add("tests", "true", "a", state="paused")
    daemon.park("tests", time.time() + 3600)

    first = await daemon.get("/v1/units?state=parked&limit=2")

    assert (first["units"], first["cursor"] is not None) == ([], True)
    assert await ids(daemon, "state=parked&limit=2") == ["tests/a"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("state=sleeping", "state"),
        ("cursor=abc", "cursor"),
        ("cursor=-1", "cursor"),
        ("cursor=99999999999999999999", "cursor"),
    ],
)
async def test_a_query_that_is_none(daemon: Daemon, query: str, field: str) -> None:
    refused = await daemon.get(f"/v1/units?{query}", code=400)

    assert refused["error"] == "invalid"
    assert field in refused["detail"]


async def test_units_of_a_campaign_that_is_not_there(daemon: Daemon) -> None:
    assert (await daemon.get("/v1/units?campaign=docs", code=404))["error"] == "not_found"


async def test_one_unit_with_prompt_history_and_screen(daemon: Daemon) -> None:
    daemon.add("docs", "echo hello from {id}; echo trouble >&2", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    for path in ("/v1/units/docs/a", "/v1/units/docs%2Fa"):
        unit = await daemon.get(path)
        assert set(unit) == UNIT_FIELDS | {"prompt", "cwd", "output", "attempt", "screen", "history"}
        assert (unit["prompt"], unit["cwd"], unit["output"]) == ("do a", str(daemon.context.folder), None)
        assert unit["screen"] == "hello from a\ntrouble\n"
        assert [event["name"] for event in unit["history"]] == ["unit.started", "unit.done"]


async def test_the_screen_of_an_agent_that_prints_events_is_its_transcript_and_its_log_has_the_events(
    run_daemon: RunDaemon,
) -> None:
    event = '{"type": "assistant", "session_id": "s", "message": {"content": [{"type": "text", "text": "Hello."}]}}'
    start = f'["sh", "-c", {json.dumps(f"echo {event!r}")}, "{{prompt}}"]'
    agent = f'provider = "claude-code"\nstream = "json"\nstart = {start}'
    async with run_daemon(f"[agents.mine]\n{agent}\n") as daemon:
        daemon.add("docs", "", "a", agent="mine", max_attempts=1)
        await daemon.until(lambda: daemon.unit("docs/a").ended_at is not None)

        unit = await daemon.get("/v1/units/docs/a")
        log = await daemon.get("/v1/units/docs/a/log")

    assert unit["screen"] == "said    Hello.\n"
    assert log["stdout"] == f"{event}\n"


async def test_a_unit_called_why_is_found_and_asked_why(daemon: Daemon) -> None:
    daemon.add("docs", "true", "why", "log", state="paused")

    assert (await daemon.get("/v1/units/docs/why"))["id"] == "docs/why"
    assert (await daemon.get("/v1/units/docs/log"))["id"] == "docs/log"
    assert (await daemon.get("/v1/units/docs/why/why"))["unit"] == "docs/why"
    assert (await daemon.get("/v1/units/docs%2Flog/why"))["unit"] == "docs/log"


@pytest.mark.parametrize(
    "path", ["docs/b", "docs", "b", "docs/a/b", "docs/b/why", "docs/b/log", "why", "%25", "a%00/b"]
)
async def test_a_unit_that_is_not_there(daemon: Daemon, path: str) -> None:
    daemon.add("docs", "true", "a", state="paused")

    refused = await daemon.get(f"/v1/units/{path}", code=404)

    assert refused["error"] == "not_found"


async def test_a_list_says_what_units_wait_for_as_why_does(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    daemon.park("docs", time.time() + 3600)

    listed = (await daemon.get("/v1/units"))["waits_for"]
    await daemon.ask("POST", "/v1/campaigns/docs/pause")
    paused = (await daemon.get("/v1/units?state=waiting"))["waits_for"]

    assert listed == {"docs/b": "the quota window is spent", "docs/c": "sessions at its limit (1/1)"}
    assert paused == {"docs/c": "the campaign docs is paused"}


async def test_why_it_waits_is_parked_paused_runs(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b", "c")
    await daemon.until(lambda: daemon.counts("docs").running == 1)
    until = time.time() + 3600
    daemon.park("docs", until)

    running = await daemon.get("/v1/units/docs/a/why")
    parked = await daemon.get("/v1/units/docs/b/why")
    waiting = await daemon.get("/v1/units/docs/c/why")
    await daemon.ask("POST", "/v1/campaigns/docs/pause")
    paused = await daemon.get("/v1/units/docs/c/why")

    assert waiting == {
        "unit": "docs/c",
        "state": "waiting",
        "reason": "limit",
        "detail": "sessions at its limit (1/1)",
        "scope": "sessions",
        "since": daemon.store.campaigns()[0].created_at,
        "until": None,
        "hint": None,
        "learnt": None,
        "others": [],
    }
    assert (running["state"], running["reason"]) == ("running", "running")
    assert (parked["state"], parked["reason"], parked["detail"]) == ("parked", "parked", "the quota window is spent")
    assert parked["until"] == pytest.approx(until, abs=1)
    assert (paused["reason"], paused["hint"]) == ("paused", "paceline resume docs")


async def test_the_line_of_a_campaign_is_not_taken_for_that_of_another_whose_name_begins_so(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b")
    daemon.add("docs two", WAITS, "a")
    await daemon.until(lambda: daemon.counts("docs").running + daemon.counts("docs two").running == 1)
    daemon.add("docs", WAITS, "a", "b", "c")
    daemon.add("docs two", WAITS, "a", "b")
    await daemon.until(lambda: len(daemon.engine.wait_reasons()) == 2)

    why = await daemon.get("/v1/units/docs/c/why")
    overview = await daemon.get("/v1/overview")

    assert (why["reason"], why["others"]) == ("limit", [])
    waits = [(wait["campaign"], wait["account"], wait["reason"]) for wait in overview["waits"]]
    assert waits == [("docs", None, "limit"), ("docs two", None, "limit")]


async def test_the_log_is_the_end_of_each_channel(daemon: Daemon) -> None:
    daemon.add("docs", "seq 1 20000; echo trouble >&2", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    whole = await daemon.get("/v1/units/docs/a/log")
    short = await daemon.get("/v1/units/docs/a/log?tail_bytes=12")
    one = await daemon.get("/v1/units/docs%2Fa/log?channel=stderr")

    assert (whole["unit"], whole["attempt"]) == ("docs/a", daemon.unit("docs/a").attempt_id)
    assert whole["stdout"].endswith("19999\n20000\n")
    assert len(whole["stdout"]) == 64 * 1024
    assert whole["truncated"] is True
    assert (short["stdout"], short["stderr"]) == ("19999\n20000\n", "trouble\n")
    assert one == {
        "unit": "docs/a",
        "attempt": daemon.unit("docs/a").attempt_id,
        "stdout": None,
        "stderr": "trouble\n",
        "screen": None,
        "transcript": None,
        "truncated": False,
    }
    assert whole["transcript"].endswith("19999\n20000\ntrouble\n")


async def test_each_attempt_of_a_unit_has_its_own_log(daemon: Daemon) -> None:
    daemon.add(
        "docs", "echo try >> tries; echo this is $(wc -l < tries); [ $(wc -l < tries) -gt 1 ]", "a", max_attempts=1
    )
    await daemon.until(lambda: daemon.counts("docs").quarantined == 1)
    first = daemon.unit("docs/a").attempt_id
    await daemon.ask("POST", "/v1/units/docs/a/retry")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    earlier = await daemon.get(f"/v1/units/docs/a/log?attempt={first}")
    last = await daemon.get("/v1/units/docs/a/log")
    daemon.add("other", "true", "b")
    foreign = await daemon.get(f"/v1/units/other/b/log?attempt={first}", code=404)

    assert (earlier["attempt"], earlier["stdout"]) == (first, "this is 1\n")
    assert last["stdout"] == "this is 2\n"
    assert foreign["detail"] == f"other/b has no attempt {first!r}; the `attempt` of its events names them"


async def test_units_are_searched_and_ordered(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a1", "b1", "a2", state="paused")
    daemon.store.move_units(["docs/a2"], "held", "no key for gpt", now=time.time())

    assert await ids(daemon, "search=A") == ["docs/a1", "docs/a2"]
    assert await ids(daemon, "search=gpt") == ["docs/a2"]
    assert await ids(daemon, "order=attention&limit=1") == ["docs/a2", "docs/a1", "docs/b1"]
    long = await daemon.get(f"/v1/units?search={'x' * 201}", code=400)
    unknown = await daemon.get("/v1/units?order=size", code=400)
    assert "search" in long["detail"]
    assert "order" in unknown["detail"]


@pytest.mark.parametrize(("query", "field"), [("channel=stdin", "channel"), ("tail_bytes=0", "tail_bytes")])
async def test_a_log_that_cannot_be(daemon: Daemon, query: str, field: str) -> None:
    daemon.add("docs", "true", "a")
    await daemon.until(lambda: daemon.counts("docs").done == 1)

    assert field in (await daemon.get(f"/v1/units/docs/a/log?{query}", code=400))["detail"]


async def test_a_unit_that_never_ran_has_no_log(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", state="paused")

    refused = await daemon.get("/v1/units/docs/a/log", code=404)

    assert refused == {"error": "not_found", "detail": "docs/a has not been started yet"}


async def test_hostile_output_leaves_as_text(daemon: Daemon) -> None:
    hostile = r"\033[2J\033]0;owned\007\033[31mred\033[0m <script>alert(1)</script> \000\010\302\233\377"
    daemon.add("docs", f"printf '{hostile}\\n'; printf '{hostile}\\n' >&2; exit 1", "a", max_attempts=1)
    await daemon.until(lambda: daemon.counts("docs").quarantined == 1)

    log = await daemon.get("/v1/units/docs/a/log")
    unit = await daemon.get("/v1/units/docs/a")

    for text in (log["stdout"], log["stderr"], unit["screen"], unit["reason"]):
        assert "<script>alert(1)</script>" in text
        assert all(letter.isprintable() or letter in "\n\t" for letter in text)
    assert log["stdout"].startswith("red <script>")


async def test_a_unit_gives_up_its_conversation_on_request(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b")
    await daemon.until(lambda: daemon.counts("docs").running)

    waiting = await daemon.ask("POST", "/v1/units/docs/b/retry", {"fresh": True})
    refused = await daemon.ask("POST", "/v1/units/docs/a/retry", {"fresh": True}, code=409)
    unknown = await daemon.ask("POST", "/v1/units/docs/b/retry", {"frsh": True}, code=400)

    assert (waiting["state"], waiting["session_id"]) == ("todo", None)
    assert refused["detail"] == "docs/a is running in its conversation; `paceline cancel docs/a` first"
    assert "frsh" in unknown["detail"]


async def test_a_unit_is_paused_resumed_cancelled_and_retried(daemon: Daemon) -> None:
    await daemon.ask("PUT", "/v1/pool", {"sessions": 1})
    daemon.add("docs", WAITS, "a", "b/c")
    await daemon.until(lambda: daemon.counts("docs").running)

    paused = await daemon.ask("POST", "/v1/units/docs/b/c/pause")
    resumed = await daemon.ask("POST", "/v1/units/docs/b/c/resume")
    refused = await daemon.ask("POST", "/v1/units/docs/a/pause", code=409)
    asked = await daemon.ask("POST", "/v1/units/docs/a/pause", {"at_turn": True})
    ending = [each.event.unit for each in daemon.store.events() if each.event.name == "unit.ending"]
    assert (asked["state"], ending) == ("running", ["docs/a"])
    cancelled = await daemon.ask("POST", "/v1/units/docs/a/cancel")
    await daemon.until(lambda: all(session.unit.id != "docs/a" for session in daemon.engine.live_sessions()))
    retried = await daemon.ask("POST", "/v1/units/docs/a/retry")

    assert [each["state"] for each in (paused, resumed, cancelled, retried)] == ["held", "todo", "cancelled", "todo"]
    assert refused["detail"] == (
        "docs/a is running: only a unit that waits can be paused; "
        "`paceline pause docs/a --at-turn` ends its session at its next turn, `cancel` at once"
    )
    assert (await daemon.ask("POST", "/v1/units/docs/x/retry", code=404))["error"] == "not_found"


async def test_an_unverified_unit_is_accepted_and_no_other(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", "b", state="paused")
    (unit,) = claim(daemon.store, campaign="docs", account="")
    record(daemon.store, [ended(unit, "unverified")])

    accepted = await daemon.ask("POST", "/v1/units/docs/a/accept")
    refused = await daemon.ask("POST", "/v1/units/docs/b/accept", code=409)

    assert (accepted["state"], accepted["reason"]) == ("done", "accepted by a person; its check did not pass")
    assert refused["detail"] == "docs/b is todo: only an unverified unit, whose check did not pass, is accepted"


async def test_a_unit_called_like_an_action_is_acted_on_itself(daemon: Daemon) -> None:
    daemon.add("docs", "true", "a", "a/cancel", "a/log", state="paused")

    paused = await daemon.ask("POST", "/v1/units/docs/a/cancel/pause")
    retried = await daemon.ask("POST", "/v1/units/docs/a/cancel/retry")
    why = await daemon.get("/v1/units/docs/a/log/why")

    assert [(each["id"], each["state"]) for each in (paused, retried)] == [
        ("docs/a/cancel", "held"),
        ("docs/a/cancel", "todo"),
    ]
    assert daemon.unit("docs/a").state == "todo"
    assert why["unit"] == "docs/a/log"
