"""The bound on close reading: all notices of a usual run are read, and of a flood the first and the last."""

from paceline.detect.notice_budget import (
    FREE_AT_A_TIME,
    FREE_NOTICES,
    LAST_OF_BLOCK,
    PER_BLOCK,
    PER_SHAPE,
    NoticeBudget,
)


def words(number: int) -> str:
    return "limit " + "x" * number


def spent() -> NoticeBudget:
    budget = NoticeBudget()
    for _ in range(FREE_NOTICES // FREE_AT_A_TIME):
        budget.end_block()
        assert all(budget.allows(words(number)) for number in range(FREE_AT_A_TIME))
    return budget


def test_after_the_free_notices_each_block_has_a_few() -> None:
    budget = spent()

    assert [budget.allows(words(number)) for number in range(PER_BLOCK + 2)] == [True] * PER_BLOCK + [False] * 2
    assert budget.is_spent
    budget.end_block()
    assert budget.allows(words(0))


def test_the_last_notices_of_a_block_are_read_at_its_end() -> None:
    budget = spent()
    for number in range(100):
        budget.allows(words(number))

    assert budget.end_block() == [words(number) for number in range(100 - LAST_OF_BLOCK, 100)]
    assert budget.end_block() == []


def test_notices_that_differ_in_numbers_share_their_part() -> None:
    budget = spent()

    assert [budget.allows(f"attempt {number}") for number in range(PER_SHAPE + 1)] == [True] * PER_SHAPE + [False]
    assert budget.allows("another limit")
    assert budget.end_block() == [f"attempt {PER_SHAPE}"]


def test_time_frees_notices() -> None:
    budget = spent()
    for number in range(PER_BLOCK):
        budget.allows(words(number))
    budget.add_time(-5.0)
    assert budget.is_spent
    budget.add_time(1.0)

    assert budget.allows(words(0))
    budget.add_time(1e9)
    assert [budget.allows(words(number)) for number in range(FREE_AT_A_TIME)] == [True] * FREE_AT_A_TIME


def test_one_piece_of_output_has_a_part_of_the_free_notices() -> None:
    budget = NoticeBudget()

    allowed = [budget.allows(words(number)) for number in range(FREE_NOTICES)]

    assert allowed.count(True) == FREE_AT_A_TIME + PER_BLOCK
    budget.add_time(0.1)
    assert [budget.allows(words(number)) for number in range(FREE_AT_A_TIME)] == [True] * FREE_AT_A_TIME


def test_of_a_flood_of_events_the_last_are_read_at_the_end_of_the_block() -> None:
    budget = spent()
    events: list[dict[str, object]] = [{"type": "x" * number} for number in range(100)]
    for event in events:
        budget.allows(str(event), event)

    assert budget.end_block() == events[-LAST_OF_BLOCK:]
