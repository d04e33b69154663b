"""A call passes no more functions and modules than it did: the bars of the walks may only fall."""

from tests.walks import BARS, PAGE, count_walks, with_table


def test_no_walk_has_become_longer() -> None:
    longer = {
        name: found
        for name, found in count_walks().items()
        if found[0] > BARS[name].functions or found[1] > BARS[name].modules
    }

    assert longer == {}, "python -m tests.walks prints all walks"


def test_the_page_has_the_present_table() -> None:
    page = PAGE.read_text()

    assert with_table(page) == page, "python -m tests.walks --write"
