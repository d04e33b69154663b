"""Keys as people see them: what each has spent of its budget, and when it goes on."""

import pytest

from paceline.store import Balances, ClientKey, HashedKey, KeyBudget, SpendRow
from paceline.views.capacity import KeyList, KeyView, key_list

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC
DAY = 86_400.0
MIDNIGHT = 1_800_057_600.0


def row(day: str, dollars: float, key: str = "team") -> SpendRow:
    created_at = NOW - 30 * DAY
    return SpendRow(day=day, key=key, key_created_at=created_at, account="work", model="m", requests=1, billed=dollars)


ROWS = [row("2027-01-02", 8.0), row("2027-01-15", 3.0), row("2027-01-15", 50.0, "other")]


def seen(*keys: ClientKey, more: tuple[SpendRow, ...] = ()) -> KeyList:
    return key_list([HashedKey(key, key.name) for key in keys], Balances((*ROWS, *more)), NOW)


@pytest.mark.parametrize(
    ("budget", "spent", "is_reached", "resumes_at"),
    [
        (KeyBudget(5.0, "day"), 4.0, False, None),
        (KeyBudget(4.0, "day"), 4.0, True, MIDNIGHT),
        (KeyBudget(20.0, "month"), 12.0, False, None),
        (KeyBudget(12.0, "month"), 12.0, True, 1_801_440_000.0),
        (KeyBudget(10.0, "total"), 12.0, True, None),
        (None, None, False, None),
    ],
)
def test_a_key_shows_what_is_spent_of_its_budget_and_when_it_goes_on(
    budget: KeyBudget | None, spent: float | None, is_reached: bool, resumes_at: float | None
) -> None:
    team = ClientKey(name="team", budget=budget, created_at=NOW - 30 * DAY)
    gone = ClientKey(name="gone", created_at=NOW - DAY, revoked_at=NOW)

    listed = seen(gone, team, more=(row("2027-01-15", 1.0),))

    assert listed == KeyList(
        keys=[
            KeyView(
                name="team",
                pool=None,
                models=(),
                rpm=None,
                tpm=None,
                parallel=None,
                priority_max=0,
                weight=1.0,
                budget=None if budget is None else budget.text,
                spent=spent,
                is_reached=is_reached,
                resumes_at=resumes_at,
                all_paths=False,
                created_at=NOW - 30 * DAY,
            )
        ]
    )


def test_what_an_earlier_key_of_the_name_has_spent_is_not_shown_for_the_new_one() -> None:
    team = ClientKey(name="team", budget=KeyBudget(5.0, "day"), created_at=NOW)

    assert [each.spent for each in seen(team).keys] == [0.0]
