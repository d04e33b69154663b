"""Whole outputs of real agent CLIs: the conclusion about each run, however its bytes arrive."""

from tests.agents.stream.golden_cases import GoldenCase, cut, golden_cases, read_run
from tests.detect.each_row import each_row

CASES = golden_cases()
JUDGED = [case for case in CASES if case.outcome is not None]
LIMITS = frozenset({"rate_limit", "quota_window", "overloaded", "billing"})
SILENT = frozenset({"qwen/429_retry_after", "qwen/429_retry_after.text", "qwen/503"})
"""Runs that printed no word about the limit they met: the conclusion is drawn from the silence."""


def by_name(case: GoldenCase) -> str:
    return case.name


@each_row("case", JUDGED, ids=by_name)
def test_the_outcome_of_a_real_run(case: GoldenCase) -> None:
    understood = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code)

    assert understood.outcome == case.outcome


@each_row("case", CASES, ids=by_name)
def test_chunks_of_any_size_and_either_channel_first_are_understood_alike(case: GoldenCase) -> None:
    whole = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code)

    for size in (1, 7, 4096):
        chunks = cut(case.stdout, size), cut(case.stderr, size)
        assert read_run(case.provider, *chunks, exit_code=case.exit_code) == whole
    turned = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code, stderr_first=True)
    assert (turned.outcome, turned.session_id, turned.tokens) == (whole.outcome, whole.session_id, whole.tokens)


@each_row("case", [case for case in JUDGED if case.outcome in LIMITS], ids=by_name)
def test_a_limit_that_was_printed_is_reported_once(case: GoldenCase) -> None:
    understood = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code)

    reported = [(type(signal).__name__, signal.reach) for signal in understood.signals]
    assert len(reported) == len(set(reported))
    assert reported or case.name in SILENT


@each_row("case", [case for case in JUDGED if "success" in case.name], ids=by_name)
def test_a_healthy_run_gives_no_limit(case: GoldenCase) -> None:
    understood = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code)

    kinds = {type(signal).__name__ for signal in understood.signals}
    assert kinds <= {"Budget"}


@each_row("case", [case for case in CASES if case.stdout.startswith(b"{")], ids=by_name)
def test_a_stream_names_its_session(case: GoldenCase) -> None:
    understood = read_run(case.provider, [case.stdout], [case.stderr], exit_code=case.exit_code)

    assert understood.session_id is not None
    assert understood.session_id.encode() in case.stdout
