"""The import of a long plan into the store, in steps, so that others of the same event loop have their turns."""

import asyncio
import contextlib
from collections.abc import Sequence

from paceline.events import Event
from paceline.plans.plan_file import Plan
from paceline.store import Added, Store


async def import_in_steps(store: Store, plan: Plan, *, update: bool, now: float, events: Sequence[Event]) -> Added:
    """Add the campaign of a checked plan together with `events`, as `Store.add_campaign` does.

    Between two steps the event loop runs: a hundred thousand units hold nobody up.
    """
    adding = store.add_campaign_in_steps(plan.campaign, plan.units, update=update, now=now, events=events)
    with contextlib.closing(adding) as steps:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                added: Added = end.value
                return added
            await asyncio.sleep(0)
