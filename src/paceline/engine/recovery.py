"""The recovery of units that were running when an engine ended, or when a pass failed half-way.

Here: which sessions are adopted, which attempts are lost, which processes are nobody's. It runs at the start of an
engine and after a failed pass, whose claim may be stored although its launch never happened. Sessions on another
machine are counted and left alone: that their host is silent does not mean that they have ended.
"""

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple

from paceline.agents.account import split_login
from paceline.core import Governor, Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.attempt_outcome import OutcomeRecorder
from paceline.engine.launcher import Launcher
from paceline.engine.session import LiveSession
from paceline.engine.ticket_queues import unit_ticket
from paceline.engine.unit_stages import UnitStages
from paceline.engine.workspace_preparation import placed
from paceline.store import Campaign, OutcomeRecord, Store, Unit

log = logging.getLogger("paceline.engine")

SETTLE_SECONDS = 2.0
"""How often units on other machines are read: their places are given back that much later."""


STAGES = ("checking", "delivering")
"""Phases of units whose agents have ended well."""


class Elsewhere(NamedTuple):
    """An attempt on another machine."""

    attempt_id: str
    host: str


class Recovery:
    """Finds the sessions that outlived their engine."""

    def __init__(
        self,
        store: Store,
        governor: Governor,
        launcher: Launcher,
        *,
        outcomes: OutcomeRecorder,
        stages: UnitStages,
    ) -> None:
        self._store = store
        self._governor = governor
        self._hosts = launcher.hosts
        self._settings = launcher.settings
        self._accounts = launcher.settings.campaign_accounts
        self._launcher = launcher
        self._outcomes = outcomes
        self._stages = stages
        self._lead = launcher.lead
        self._settled_at = -math.inf
        self.elsewhere: dict[str, Elsewhere] = {}
        """Units that run on other machines, by id."""

    def recover(self, live: dict[str, LiveSession], campaigns: Mapping[str, Campaign], now: float) -> None:
        """Adopt the sessions that run, record the attempts that never began, and end processes without a unit."""
        never_began: list[OutcomeRecord] = []
        known = {*live, *self.elsewhere, *(unit.id for unit in self._stages.units())}
        for unit in self._store.running_units():
            if unit.id in known or not self._is_ours(unit):
                continue
            campaign = campaigns.get(unit.campaign)
            session = None if campaign is None else self._adopted(unit, campaign)
            host = None if session is not None else self._host_elsewhere(unit)
            if host is not None and campaign is not None:
                self._leave_alone(unit, campaign, host, now)
            elif unit.phase in STAGES and campaign is not None:
                self._stages.verifier.resume(unit, campaign, now)
            elif session is None:
                lost = AttemptOutcome(ending="lost", reason="the engine ended before the session began")
                never_began.append(self._outcomes.record_of(unit, lost, now))
            else:
                self._governor.adopt(session.ticket, now=now)
                live[unit.id] = session
        self._outcomes.store(never_began, now)
        owned = [session.handle.attempt_id for session in live.values()] + self._stages.attempt_ids()
        owned += [work.attempt_id for work in self.elsewhere.values()]
        for orphan in self._hosts.local.executor.sweep(owned):
            log.warning("%s %s, which belongs to no running unit", orphan.action, orphan.attempt_id)

    def _is_ours(self, unit: Unit) -> bool:
        """Return whether this process brings the unit to its end. Those of workers are the leader's alone."""
        return self._hosts.is_leader or self._hosts.of_unit(unit) is self._hosts.local

    def _host_elsewhere(self, unit: Unit) -> str | None:
        """Return the machine of another leader that has the session of the unit."""
        is_local = self._hosts.of_unit(unit) is self._hosts.local
        return self._lead.host_elsewhere(unit.attempt_id or "") if is_local else None

    def settle_elsewhere(self, now: float) -> None:
        """Give back the places of units that ran on other machines and do not run any more."""
        if not self.elsewhere or 0 <= now - self._settled_at < SETTLE_SECONDS:
            return
        self._settled_at = now
        for unit_id, work in list(self.elsewhere.items()):
            unit = self._store.unit(unit_id)
            if unit is None or unit.state != "running" or unit.attempt_id != work.attempt_id:
                del self.elsewhere[unit_id]
                self._governor.abandon(work.attempt_id, now=now)

    def _leave_alone(self, unit: Unit, campaign: Campaign, host: str, now: float) -> None:
        """Count the unit, and wait for what an engine on its machine stores about it."""
        assert unit.attempt_id is not None
        ticket = self._ticket(unit, campaign)
        self._governor.adopt(ticket, now=now)
        self.elsewhere[unit.id] = Elsewhere(unit.attempt_id, host)
        log.info("%s runs on %s: it is left alone until an engine there answers", unit.id, host)

    def _ticket(self, unit: Unit, campaign: Campaign) -> Ticket:
        local_host = self._settings.local_host
        return unit_ticket(unit, campaign, self._accounts, unit.attempt_id or "", local_host=local_host)

    def _adopted(self, unit: Unit, campaign: Campaign) -> LiveSession | None:
        """Return the session that an engine before has started; None if there is none, or its agent has ended well."""
        is_over = unit.phase in STAGES and self._hosts.of_unit(unit) is not self._hosts.local
        if unit.attempt_id is None or is_over:
            return None
        account_id, _ = split_login(unit.account or "")
        account = self._accounts.of(campaign, account_id)
        ticket = self._ticket(unit, campaign)
        return self._launcher.adopt(placed(unit, campaign, self._hosts.of_unit(unit).home), campaign, account, ticket)
