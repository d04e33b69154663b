"""A list of messages as one test: it names every line that is read wrongly."""

import pytest
from tests.detect.each_row import each_row


def test_every_wrong_row_of_a_list_is_named() -> None:
    @each_row(("text", "kind"), [("limit reached", "rate"), ("all is well", "rate"), ("quota spent", "rate")])
    def test_of_a_list(text: str, kind: str) -> None:
        assert ("rate" if "limit" in text else "none") == kind

    with pytest.raises(AssertionError, match=r"2 of 3 rows(.|\n)*all is well(.|\n)*quota spent"):
        test_of_a_list()
