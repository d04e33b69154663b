"""The recovery of units that were running when an engine ended, or when a pass failed half-way.

Here: which sessions are adopted, which attempts are lost, which processes are nobody's. It runs at the start of an
engine and after a failed pass, whose claim may be stored although its launch never happened.
"""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from paceline.agents.account import split_login
from paceline.core import Governor, Ticket
from paceline.core.unit_lifecycle import AttemptOutcome
from paceline.engine.dispatch.ticket_queues import unit_ticket
from paceline.engine.session.launcher import Launcher
from paceline.engine.session.live_session import LiveSession
from paceline.engine.work.attempt_outcome import OutcomeRecorder
from paceline.engine.work.unit_stages import UnitStages, placed
from paceline.executors import Handle
from paceline.store import Campaign, OutcomeRecord, Store, Unit

log = logging.getLogger("paceline.engine")
replace = msgspec.structs.replace

STAGES = ("checking", "delivering")
"""Phases of units whose agents have ended well."""
CANCELLED = AttemptOutcome(ending="cancelled", reason="cancelled")


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
        self.has_cancelled = False
        """Whether units may have been cancelled whose attempts have not ended."""
        self._strays: list[Handle] = []

    def recover(self, live: dict[str, LiveSession], campaigns: Mapping[str, Campaign], now: float) -> None:
        """Adopt the sessions that run, record the attempts that never began, and end processes without a unit."""
        never_began = self._take_up(self._store.running_units(also_cancelled=True), live, campaigns, now)
        self._end_checks([unit for unit in never_began if unit.result.session_end is not None], campaigns, now)
        self._outcomes.store([self._lost(unit, now) for unit in never_began if unit.state == "running"], now)
        owned = [session.handle.attempt_id for session in live.values()] + self._stages.attempt_ids()
        local = self._hosts.local.executor
        for orphan in local.sweep(owned):
            log.warning("%s %s, which belongs to no running unit", orphan.action, orphan.attempt_id)
            stray = local.adopt(orphan.attempt_id) if orphan.action == "stopped" else None
            self._strays += [] if stray is None else [stray]
        self.has_cancelled = True

    def settle_cancelled(self, live: dict[str, LiveSession], campaigns: Mapping[str, Campaign], now: float) -> None:
        """Bring the attempts to their ends whose units were cancelled and that nobody follows."""
        if not self.has_cancelled:
            return
        cancelled = [unit for unit in self._store.running_units(also_cancelled=True) if unit.state != "running"]
        never_began = self._take_up(cancelled, live, campaigns, now)
        commands = [*self._stages.attempt_ids(), *self._live_strays()]
        over = [unit for unit in never_began if not any(each.startswith(f"{unit.attempt_id}-") for each in commands)]
        self._outcomes.store([self._lost(unit, now) for unit in over], now)
        self.has_cancelled = len(cancelled) > len(over)

    def _take_up(
        self, units: Sequence[Unit], live: dict[str, LiveSession], campaigns: Mapping[str, Campaign], now: float
    ) -> list[Unit]:
        """Adopt the sessions of units that nobody follows. Returns the units that have none."""
        never_began: list[Unit] = []
        known = {*live, *(unit.id for unit in self._stages.units())}
        for unit in units:
            if unit.id in known:
                continue
            campaign = campaigns.get(unit.campaign)
            is_counted = unit.state != "running" and unit.result.session_end is not None
            session = None if campaign is None or is_counted else self._adopted(unit, campaign)
            if unit.phase in STAGES and campaign is not None:
                self._stages.resume(unit, campaign, now)
            elif session is None:
                never_began.append(unit)
            else:
                if unit.state != "running":
                    session.ending = CANCELLED
                self._governor.adopt(session.ticket, now=now)
                live[unit.id] = session
        return never_began

    def _end_checks(self, units: Sequence[Unit], campaigns: Mapping[str, Campaign], now: float) -> None:
        """End the checks of units that were cancelled while no engine ran."""
        for unit in units:
            campaign = campaigns.get(unit.campaign)
            if campaign is not None:
                self._stages.resume(replace(unit, phase="checking"), campaign, now)
                self._stages.drop(unit.id, now)

    def _lost(self, unit: Unit, now: float) -> OutcomeRecord:
        lost = AttemptOutcome(ending="lost", reason="the engine ended before the session began")
        record = self._outcomes.record_of(unit, CANCELLED if unit.state == "cancelled" else lost, now)
        return replace(record, result=replace(unit.result, session_end=None))

    def _live_strays(self) -> list[str]:
        """Return the sessions and commands that belong to no unit and have not ended yet."""
        self._strays = [each for each in self._strays if not each.state().is_over]
        return [each.attempt_id for each in self._strays]

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
