"""The Governor as the leader has it, or the next one will find it: for commands that look in from another process.

It is built from the store and thrown away; what is decided on it is never carried out.
"""

from collections.abc import Iterable

from paceline.cli.wiring import Home, engine_settings
from paceline.core import Governor, Ticket
from paceline.engine import command_log as control
from paceline.engine.dispatcher import Lines
from paceline.engine.external_slots.registry import is_there, ticket_of
from paceline.engine.governor_state import CommandReader, load_governor
from paceline.store import Campaign, Unit


class Outlook:
    """Limits with what was learnt and what was commanded since, and a place taken for everything that runs."""

    def __init__(self, home: Home, now: float, extra: Iterable[Campaign] = ()) -> None:
        settings = engine_settings(home.settings, home.zone)
        self.governor: Governor = load_governor(home.store, settings.governor, now)
        self.lines = Lines(self.governor, settings.accounts, "outlook")
        self.campaigns = {campaign.name: campaign for campaign in (*home.store.campaigns(), *extra)}
        control.carry_out(self.governor, CommandReader(home.store).read(), now)
        for campaign in self.campaigns.values():
            self._limit_campaign(campaign, now)
        self.tickets = {unit.id: self._ticket(unit, home) for unit in home.store.running_units()}
        for ticket in self.tickets.values():
            self.governor.adopt(ticket, now=now)
        for slot in home.store.slots():
            if slot.granted_at is not None and is_there(slot, now):
                self.governor.adopt(ticket_of(slot), now=now)

    def _limit_campaign(self, campaign: Campaign, now: float) -> None:
        scope = f"campaign:{campaign.name}"
        if self.governor.get_limit(scope) != campaign.max_sessions:
            self.governor.set_limit(scope, campaign.max_sessions, now=now)

    def _ticket(self, unit: Unit, home: Home) -> Ticket:
        campaign = self.campaigns[unit.campaign]
        account = home.settings.accounts.get(unit.account or "")
        scopes = self.lines.scopes(campaign, account.account if account else None)
        return Ticket(f"unit:{unit.id}", scopes, group=campaign.name, priority=campaign.priority, leased=False)
