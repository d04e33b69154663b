"""OpenClaw: caps on parallel work, and limits that are no caps."""

from hypothesis import given
from hypothesis import strategies as st
from tests.detect.each_row import each_row
from tests.detect.readings import line_signals

from paceline.core.signals import BillingStop, PlatformLimit

NOUNS = ("Children", "Spawns", "Runs", "Agents", "Sessions", "Tasks", "")
PLACES = ("PerGroup", "PerAgent", "PerSession", "PerRequester", "")
TOTALS = ("Total", "Lifetime", "AllTime", "Cumulative")
AT_ONCE = ("Concurrent", "Active", "Running", "Parallel", "")


def camel(*words: str) -> str:
    return "max" + "".join(words)


def snake(*words: str) -> str:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in "".join(words))
    return f"max{name}"


totals = st.tuples(st.sampled_from(TOTALS), st.sampled_from(NOUNS), st.sampled_from(PLACES)) | st.tuples(
    st.sampled_from(NOUNS[:-1]), st.sampled_from((*TOTALS, "Ever")), st.sampled_from(PLACES)
)
caps = st.tuples(st.sampled_from(AT_ONCE), st.sampled_from(NOUNS[:-1]), st.sampled_from(PLACES)) | st.tuples(
    st.just("Total"), st.sampled_from(AT_ONCE[:-1]), st.sampled_from(NOUNS)
)
options = st.sampled_from((camel, snake))
sentences = st.sampled_from(
    (
        "sessions_spawn reached tools.swarm.{option} ({count}).",
        "sessions_spawn has reached {option} ({count})",
        '{{"status":"forbidden","error":"sessions_spawn reached tools.swarm.{option} ({count})."}}',
        "Error: agents.defaults.subagents.{option} reached ({count}); later",
    )
)


@given(words=totals, spell=options, sentence=sentences, limit=st.integers(1, 100_000))
def test_a_total_of_all_that_ever_ran_is_never_a_cap_on_what_runs_at_once(
    words: tuple[str, ...], spell: object, sentence: str, limit: int
) -> None:
    option = camel(*words) if spell is camel else snake(*words)
    found = line_signals(sentence.format(option=option, count=f"{limit}/{limit}"), "openclaw")
    assert [type(signal) for signal in found] == [BillingStop]


@given(words=caps, spell=options, sentence=sentences, limit=st.integers(1, 9_999))
def test_a_cap_on_what_runs_at_once_stays_one_whatever_its_option_is_called(
    words: tuple[str, ...], spell: object, sentence: str, limit: int
) -> None:
    option = camel(*words) if spell is camel else snake(*words)
    found = line_signals(sentence.format(option=option, count=f"{limit}/{limit}"), "openclaw")
    assert [(type(signal), getattr(signal, "limit", None)) for signal in found] == [(PlatformLimit, limit)]


@each_row(
    "text",
    [
        "sessions_spawn has reached max total children for this group (200/200).",
        "sessions_spawn has reached the lifetime limit of this group (200/200).",
        "sessions_spawn reached tools.swarm.lifetimeMax (7/7)",
        "the cumulative cap of children was reached (7/7)",
        "sessions_spawn has reached max children ever started in this group (9/9)",
    ],
)
def test_a_total_that_is_spent_is_recognised_in_other_words(text: str) -> None:
    assert [type(signal) for signal in line_signals(text, "openclaw")] == [BillingStop]


@each_row(
    "text",
    [
        "Total memory used (3/8)",
        "total cache hit (5/5)",
        "Total: tests that reached the end (5/5)",
        "max total tokens (4096/4096)",
        "maxTotalTokens (4096/4096)",
        "total context limit reached (200/200)",
        "Total requests limit reached today (200/200)",
    ],
)
def test_other_totals_hold_no_account(text: str) -> None:
    assert not any(isinstance(signal, BillingStop) for signal in line_signals(text, "openclaw"))


def test_a_spent_total_says_what_a_person_can_do() -> None:
    [stop] = line_signals("sessions_spawn reached tools.swarm.maxTotalPerGroup (200/200).", "openclaw")
    assert isinstance(stop, BillingStop)
    assert stop.detail == (
        "sessions_spawn reached tools.swarm.maxTotalPerGroup (200/200): waiting does not free it; "
        "raise that total or begin a new session or group, then lift the hold"
    )


@each_row(
    ("text", "in_use", "limit"),
    [
        ("sessions_spawn has reached max active children for this session (5/5)", 5, 5),
        ("sessions_spawn has reached max active children for this session (10/5; a.b.maxChildrenPerAgent).", 10, 5),
        ("sessions_spawn reached tools.swarm.maxChildrenPerGroup (3/3).", 3, 3),
        ("sessions_spawn reached tools.swarm.maxChildrenPerGroup (50/50).", 50, 50),
        ("sessions_spawn reached tools.swarm.maxTotalConcurrent (7/7).", 7, 7),
        ("max total active children (7/7)", 7, 7),
        ("global worker limit reached (1/1 active); deferring", 1, 1),
        ("Too many concurrent requests. Limit: 4 concurrent requests", None, 4),
        ("agent thread limit reached", None, None),
        ("sessions_spawn has reached max active children for this session (2/0)", 2, None),
    ],
)
def test_a_platform_limit_is_reported_with_its_numbers(text: str, in_use: int | None, limit: int | None) -> None:
    cap = line_signals(text, "openclaw")[0]
    assert isinstance(cap, PlatformLimit)
    assert (cap.in_use, cap.limit) == (in_use, limit)


@each_row(
    "text",
    [
        "sessions_spawn is not allowed at this depth (current depth: 1, max: 1)",
        "Agent depth limit reached. Solve the task yourself.",
        "Context limit reached · /compact or /clear to continue",
        "Maximum turns reached.",
    ],
)
def test_other_limits_of_a_tool_are_not_about_capacity(text: str) -> None:
    assert line_signals(text, "openclaw") == []
