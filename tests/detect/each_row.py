"""One test for a whole list of messages: it fails with the text of every line that is read wrongly."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

LONGEST_ROW = 300
"""Characters of a line in a failure: it is enough to find it."""
Test = Callable[..., None]


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], *, ids: Callable[[Any], str] = repr
) -> Callable[[Test], Test]:
    """Call the test for each row of the list, and fail with all rows that it fails for. `ids` shows a row."""
    keys = (names,) if isinstance(names, str) else names
    every = list(rows)
    assert every, "an empty list tests nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def check(**others: object) -> None:
            wrong = []
            for row in every:
                values = (row,) if isinstance(names, str) else row
                try:
                    test(**dict(zip(keys, values, strict=True)), **others)
                except AssertionError as error:
                    wrong.append(f"{ids(row)[:LONGEST_ROW]}\n    {error}")
            assert not wrong, f"{len(wrong)} of {len(every)} rows are read wrongly:\n" + "\n".join(wrong)

        signature = inspect.signature(test)
        parameters = [each for name, each in signature.parameters.items() if name not in keys]
        check.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return check

    return decorate
