"""Each format family as a property: whatever its numbers, zones and layout, it is read right."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect import families
from tests.detect.families import Case
from tests.detect.scoring import kind_of, times_of

from paceline.detect import explain

quick = settings(max_examples=60)


def check(case: Case) -> None:
    reading = explain(case.observation)
    assert kind_of(reading.signals) == case.kind, (case.observation.text, reading)
    times = times_of(reading.signals, case.observation.seen_at)
    if case.resets_at is None:
        assert not times, (case.observation.text, reading)
    else:
        late = [at - case.resets_at for at in times]
        assert any(abs(seconds) <= 1 for seconds in late), (case.observation.text, reading, late)


@quick
@given(families.clock_banners())
def test_a_clock_time_is_its_next_occurrence_in_its_zone(case: Case) -> None:
    check(case)


@quick
@given(families.dated_banners())
def test_a_date_is_that_day_in_its_zone(case: Case) -> None:
    check(case)


@quick
@given(families.weekday_banners())
def test_a_weekday_is_the_next_such_day(case: Case) -> None:
    check(case)


@quick
@given(families.duration_banners())
def test_a_duration_counts_from_when_it_was_seen(case: Case) -> None:
    check(case)


@quick
@given(families.short_waits())
def test_a_short_wait_is_a_rate_limit(case: Case) -> None:
    check(case)


@quick
@given(families.epochs())
def test_an_epoch_is_read_in_its_own_unit(case: Case) -> None:
    check(case)


@quick
@given(families.retry_infos())
def test_retry_info_is_found_however_deep_it_lies(case: Case) -> None:
    check(case)


@quick
@given(families.retry_after_headers())
def test_retry_after_is_read_in_every_form(case: Case) -> None:
    check(case)


@quick
@given(families.unified_headers())
def test_of_several_closed_windows_the_last_to_open_counts(case: Case) -> None:
    check(case)


@quick
@given(families.laid_out())
def test_layout_changes_nothing(case: Case) -> None:
    check(case)


@quick
@given(families.harmless())
def test_what_only_mentions_limits_is_no_limit(case: Case) -> None:
    check(case)


@quick
@given(st.one_of(families.epochs(), families.retry_infos()), st.data())
def test_cut_json_never_invents_another_kind(case: Case, data: st.DataObject) -> None:
    text = str(case.observation.text)
    cut = text[: data.draw(st.integers(0, len(text)))]
    observation = families.seen(cut, provider=case.observation.provider, channel=case.observation.channel)
    assert kind_of(explain(observation).signals) in (case.kind, "none", "rate_limit", "quota_window")


@quick
@given(families.clock_banners())
def test_what_a_tool_printed_is_never_a_signal(case: Case) -> None:
    observation = families.seen(str(case.observation.text), provider="tool-output")
    assert explain(observation).signals == []
