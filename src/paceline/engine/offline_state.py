"""The state that an engine would find now, rebuilt from the store by a process that does not lead.

Here: the Governor with everything learnt and commanded, and a ticket for everything that runs. It is built to be read
and thrown away. Never here: storing or carrying out what is decided on it.
"""

import contextlib
from collections.abc import Iterable

import msgspec

from paceline.core import Governor
from paceline.engine import command_log
from paceline.engine.capacity.external_slots import LOST_GRACE_SECONDS, is_there, ticket_of
from paceline.engine.capacity.governor_state import apply_campaign_limits, load_governor
from paceline.engine.dispatch.placement import LocalMachine
from paceline.engine.dispatch.ticket_queues import TicketQueues, unit_ticket
from paceline.engine.settings import EngineSettings
from paceline.errors import PacelineError
from paceline.hosts.messages import stored_host_states
from paceline.store import Campaign, Store, StoredSlot


class OfflineState:
    """A Governor of this process's own, in which every session of a unit and every granted slot occupies its places.

    `extra` campaigns count as if they were stored. A unit whose work is checked or delivered has no session any more.
    """

    def __init__(self, store: Store, settings: EngineSettings, now: float, extra: Iterable[Campaign] = ()) -> None:
        self.governor: Governor = load_governor(store, settings.governor, now)
        self.accounts = settings.campaign_accounts
        # Hosts whose workers have joined count as if they were there: who is there now, only the leader knows.
        known = stored_host_states(store, settings.hosts)
        hosts = [each if each.facts is None else msgspec.structs.replace(each, presence="joined") for each in known]
        self.queues = TicketQueues(
            self.governor,
            settings,
            "offline",
            hosts=LocalMachine(settings, lambda: hosts).states,
        )
        self.campaigns = {campaign.name: campaign for campaign in (*store.campaigns(), *extra)}
        for command in command_log.CommandReader(store).read():
            with contextlib.suppress(PacelineError):  # the engine will log it
                command_log.carry_out(self.governor, command.event, now)
        apply_campaign_limits(self.governor, self.campaigns.values(), now)
        for unit in store.running_units(also_cancelled=True):
            campaign = self.campaigns.get(unit.campaign)
            if campaign is not None and unit.phase in (None, "working"):
                ticket_id = unit.attempt_id or f"unit:{unit.id}"  # runs inside the session name it by its attempt
                ticket = unit_ticket(unit, campaign, self.accounts, ticket_id, local_host=settings.local_host)
                self.governor.adopt(ticket, now=now)
        for slot in store.slots():
            if slot.granted_at is not None and is_there(slot) and not _has_expired(slot, now):
                self.governor.adopt(ticket_of(slot), now=now)


def _has_expired(slot: StoredSlot, now: float) -> bool:
    """Return whether a lease ran out long ago. A leader would wait for its renewal once more; a reader does not."""
    return slot.lease is not None and now >= slot.lease.expires_at + LOST_GRACE_SECONDS
