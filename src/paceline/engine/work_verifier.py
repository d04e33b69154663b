"""The stages after an agent ended well: its work is checked, committed and delivered, and then the unit is done.

The unit is `running` meanwhile, with its phase stored before each stage. Its session's slots are given up; a check
takes a place in the local scope `checks`. Here: the order of the stages and what their ends mean. A check or delivery
that cannot do its work at all says nothing about the unit: it is tried again, and the breaker pauses the campaign.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from paceline.core import Governor, Granted
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.engine.breaker import CampaignBreaker
from paceline.engine.hosts.host import Host
from paceline.engine.hosts.registry import HostRegistry
from paceline.engine.journal import EngineJournal
from paceline.engine.session import LiveSession
from paceline.engine.stage_commands import DELIVERY_SECONDS, CommandEnd, EndedCommands, StageCommands, read_end
from paceline.engine.staged_work import StagedWork, StageFaults
from paceline.engine.workspace_preparation import RETRY_SECONDS, placed, with_result, workspace_place
from paceline.engine.workspace_removal import commit_message
from paceline.errors import PacelineError, StoreError, WorkspaceError
from paceline.events import Event
from paceline.hosts.session_order import SessionOrder
from paceline.store import Campaign, OutcomeRecord, Store, Unit
from paceline.store.interface import Phase
from paceline.store.unit_result import SessionEnd, UnitResult
from paceline.workspaces import Change, commit_all, patch_file, write_patch

log = logging.getLogger("paceline.engine")

DEFAULT_CHECK_PROMPT = "The check failed:\n{output}\nFix it."
PHASES: Mapping[str, Phase] = {"check": "checking", "commit": "delivering", "deliver": "delivering"}


class WorkVerifier:
    """Moves work through its stages. A finished one becomes an outcome, which the recorder stores."""

    def __init__(
        self,
        store: Store,
        governor: Governor,
        hosts: HostRegistry,
        *,
        journal: EngineJournal,
        commands: StageCommands,
        breaker: CampaignBreaker,
    ) -> None:
        self._store = store
        self._governor = governor
        self._hosts = hosts
        self._journal = journal
        self._commands = commands
        self._faults = StageFaults(store, governor, journal, breaker)
        self.staged: dict[str, StagedWork] = {}
        self._ended = EndedCommands(hosts)
        self._delivered_events: dict[str, Event] = {}

    # -- into the stages -----------------------------------------------------------------------

    def take_over(self, session: LiveSession, record: OutcomeRecord) -> None:
        """Store that the session's work is at its first stage. Nothing is taken over of a unit that was cancelled."""
        end = SessionEnd(
            account=record.account,
            conversation_id=record.conversation_id,
            exit_code=record.transition.exit_code,
            denials=record.denials,
            warnings=record.warnings,
        )
        unit, campaign = session.unit, session.campaign
        if record.result is not None:
            unit = msgspec.structs.replace(unit, result=record.result)
        unit = with_result(unit, session_end=end, feedback=None, deliveries=0)
        work = StagedWork(unit=unit, campaign=campaign, stage="check" if campaign.check else "commit")
        if self._save(work):
            self.staged[unit.id] = work

    def resume(self, unit: Unit, campaign: Campaign, now: float) -> None:
        """Continue the stages of a unit after a restart. A command that still runs, or has ended since, is adopted."""
        stage: Literal["check", "commit"] = "check" if unit.phase == "checking" and campaign.check else "commit"
        host = self._hosts.of_unit(unit)
        work = StagedWork(unit=placed(unit, campaign, host.home), campaign=campaign, stage=stage)
        if stage == "check":
            work.handle = host.adopt(_order_of(self._commands, work, campaign.check, campaign.check_timeout))
            if work.handle is not None:
                self._governor.adopt(work.ticket, now=now)
        self.staged[unit.id] = work

    def attempt_ids(self) -> list[str]:
        """Return the ids of the commands that run, or may still run after a restart."""
        works = self.staged.values()
        deliveries = [msgspec.structs.replace(work, stage="deliver").command_id for work in works]
        return [work.command_id for work in works] + deliveries + self._ended.attempt_ids

    def drop(self, unit_id: str, now: float) -> None:
        """Forget a unit that was cancelled, and end what runs for it. Its workspace stays."""
        work = self.staged.pop(unit_id)
        if work.handle is not None:
            self._hosts.stop(work.handle)
            self._ended.add(work.handle)
        self._governor.abandon(work.ticket.id, now=now)

    # -- through the stages --------------------------------------------------------------------

    def step(self, campaigns: Mapping[str, Campaign], now: float) -> Iterator[OutcomeRecord]:
        """Move everything on. Yields what is over, without storing it: transition, result and all."""
        self._ended.archive()
        for work in list(self.staged.values()):
            campaign = campaigns.get(work.campaign.name)
            if campaign is not None:
                work.campaign = campaign
            outcome = self._try_move(work, is_active(campaign), now)
            if outcome is not None:
                del self.staged[work.unit.id]
                yield self._record(work, outcome, now)

    def take_delivered(self) -> dict[str, Event]:
        """Return the events of the deliveries that `step` has yielded. They are stored with the outcomes."""
        events, self._delivered_events = self._delivered_events, {}
        return events

    def _try_move(self, work: StagedWork, is_active: bool, now: float) -> AttemptOutcome | None:
        """Move one unit on. An error of it keeps to it; one of the store ends the pass."""
        try:
            return self._move_on(work, is_active, now)
        except StoreError:  # what is stored is the truth, and the recovery of the next pass continues from there
            del self.staged[work.unit.id]
            self._governor.abandon(work.ticket.id, now=now)
            raise
        except PacelineError as error:
            return self._faults.after_error(work, error, now)
        except Exception as error:
            log.exception("the %s of %s failed; the others continue", work.stage, work.unit.id)
            return self._faults.after_error(work, WorkspaceError(f"{type(error).__name__}: {error}"), now)

    def _move_on(self, work: StagedWork, is_active: bool, now: float) -> AttemptOutcome | None:
        """Read what has ended, and begin what follows."""
        outcome = self._read(work, now) if work.is_at_work else None
        if outcome is not None or work.is_at_work or work.unit.id not in self.staged:
            return outcome
        if not is_active and not (work.stage != "check" and work.campaign.workspace is None):
            self._governor.abandon(work.ticket.id, now=now)
        elif not 0 < work.retry_at - now <= RETRY_SECONDS:
            return self._begin(work, now)
        return None

    def _read(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        if work.job is not None:
            return self._read_job(work, now) if work.job.is_over else None
        assert work.handle is not None
        end = read_end(work.handle, now)
        return None if end is None else self._after_command(work, end, now)

    def _begin(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        match work.stage:
            case "check" if not work.campaign.check:
                work.stage = "commit"  # the check was taken from the campaign since
                return self._begin(work, now)
            case "check":
                if work.unit.result.feedback is not None:
                    # It failed, and an engine ended before that was stored.
                    return _after_failure(work, self._hosts.of_unit(work.unit))
                if isinstance(self._governor.request(work.ticket, now=now), Granted):
                    self._start(work, work.campaign.check, work.campaign.check_timeout)
            case "commit":
                if not _commits(work.campaign):
                    work.stage = "deliver"
                    return self._begin(work, now)
                _start_commit(work, self._hosts.of_unit(work.unit))
            case "deliver":
                return self._deliver(work, now)
        return None

    def _deliver(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        deliver = work.campaign.deliver
        if isinstance(deliver, tuple):
            self._start(work, deliver, DELIVERY_SECONDS)
        elif deliver == "patch":
            host = self._hosts.of_unit(work.unit)
            place = workspace_place(work.unit, work.campaign, host.home)
            work.job = host.jobs.start(write_patch, place, _patch_of(work, self._hosts.local.home))
        else:
            return self._delivered(work, now, to=None)
        return None

    def _start(self, work: StagedWork, command: tuple[str, ...], timeout: float) -> None:
        order = _order_of(self._commands, work, command, timeout)
        work.handle = self._hosts.of_unit(work.unit).begin(order)

    # -- ends ----------------------------------------------------------------------------------

    def _after_command(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        assert work.handle is not None
        handle, work.handle = work.handle, None
        after = self._after_check if work.stage == "check" else self._after_delivery
        outcome = after(work, end, now)
        self._ended.add(handle)
        self._governor.release(work.ticket.id, now=now)
        return outcome

    def _after_check(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        """Store the round, and the next prompt if it failed, before anything follows from it."""
        checks = (*work.unit.result.checks, end.round)
        work.unit = with_result(work.unit, checks=checks)
        if end.has_passed:
            work.stage = "commit"
        elif end.fault is None:
            prompt = (work.campaign.check_prompt or DEFAULT_CHECK_PROMPT).replace("{output}", end.tail)
            work.unit = with_result(work.unit, feedback=prompt)
        fields: dict[str, object] = {"round": len(checks), "exit_code": end.exit_code}
        fields |= {"seconds": end.seconds, "reason": end.fault}
        with self._journal.together():
            self._journal.append(Event("unit.checked", now, None, work.unit.id, fields))
            is_current = self._save(work)
        if not is_current:
            self.drop(work.unit.id, now)  # it was cancelled
            return None
        if end.fault is not None:
            return self._faults.after_command(work, end, f"the check cannot do its work: {end.fault}", now)
        self._faults.clear(work)
        return None if end.has_passed else _after_failure(work, self._hosts.of_unit(work.unit))

    def _after_delivery(self, work: StagedWork, end: CommandEnd, now: float) -> AttemptOutcome | None:
        if end.has_passed:
            self._faults.clear(work)
            return self._delivered(work, now, to=None)
        work.unit = with_result(work.unit, deliveries=work.unit.result.deliveries + 1)
        if not self._save(work):
            self.drop(work.unit.id, now)
            return None
        why = end.fault or f"exit code {end.exit_code}"
        return self._faults.after_command(work, end, f"the delivery failed ({why}): {end.last_line}", now)

    def _read_job(self, work: StagedWork, now: float) -> AttemptOutcome | None:
        assert work.job is not None
        job, work.job = work.job, None
        result = job.result()
        if isinstance(result, Change):
            work.unit = with_result(
                work.unit,
                commit=result.commit,
                files_changed=result.files_changed,
                lines_added=result.lines_added,
                lines_removed=result.lines_removed,
            )
            if work.stage == "check":
                return _verdict(work)  # stored together with its commit
            work.stage = "deliver"
            if not self._save(work):
                self.drop(work.unit.id, now)
            return None
        return self._delivered(work, now, to=str(_patch_of(work, self._hosts.local.home)))

    def _delivered(self, work: StagedWork, now: float, *, to: str | None) -> AttemptOutcome:
        if work.campaign.workspace is not None:
            result = work.unit.result
            fields: dict[str, object] = {"branch": result.branch, "commit": result.commit, "patch": to}
            self._delivered_events[work.unit.id] = Event("unit.delivered", now, None, work.unit.id, fields)
        return AttemptOutcome(ending="succeeded", reason="done")

    # -- what is stored ------------------------------------------------------------------------

    def _save(self, work: StagedWork) -> bool:
        unit = work.unit
        return self._store.save_progress(unit.id, unit.fence, phase=PHASES[work.stage], result=unit.result)

    def _record(self, work: StagedWork, outcome: AttemptOutcome, now: float) -> OutcomeRecord:
        end = work.unit.result.session_end or SessionEnd()
        result: UnitResult = msgspec.structs.replace(work.unit.result, session_end=None, port_base=None, deliveries=0)
        outcome = msgspec.structs.replace(outcome, exit_code=end.exit_code)
        return OutcomeRecord(
            unit_id=work.unit.id,
            fence=work.unit.fence,
            transition=transition_after(work.unit.counters, outcome, Policy(), now),
            account=end.account,
            conversation_id=end.conversation_id,
            denials=end.denials,
            warnings=end.warnings,
            result=result,
        )


def needs_stages(campaign: Campaign) -> bool:
    """Return whether work of the campaign is checked, committed or delivered after its session."""
    return bool(campaign.check) or campaign.workspace is not None


def _commits(campaign: Campaign) -> bool:
    return campaign.workspace is not None and campaign.commit


def is_active(campaign: Campaign | None) -> bool:
    return campaign is not None and campaign.state == "active"


def _order_of(commands: StageCommands, work: StagedWork, command: tuple[str, ...], timeout: float) -> SessionOrder:
    return commands.order(work.command_id, command, work.unit, work.campaign, work.unit.spec.cwd, timeout)


def _patch_of(work: StagedWork, home: Path) -> Path:
    """Return the file in the leader's home that the change is delivered to."""
    return patch_file(home, work.campaign.name, work.unit.spec.id)


def _start_commit(work: StagedWork, host: Host) -> None:
    place = workspace_place(work.unit, work.campaign, host.home)
    work.job = host.jobs.start(commit_all, place, commit_message(work.unit.id))


def _after_failure(work: StagedWork, host: Host) -> AttemptOutcome | None:
    """Return what follows from a failed check. Work without a round left is committed first, for `accept`."""
    outcome = _verdict(work)
    if outcome.ending != "unverified" or not _commits(work.campaign):
        return outcome
    _start_commit(work, host)
    return None


def _verdict(work: StagedWork) -> AttemptOutcome:
    """Return what follows from the last check, which failed: another round, if one is left."""
    checks = work.unit.result.checks
    last = checks[-1]
    failed = sum(1 for each in checks if each.exit_code and each.reason is None)
    if failed <= work.campaign.check_rounds:
        return AttemptOutcome(ending="check_failed", reason=f"the check failed with exit code {last.exit_code}")
    times = "once" if failed == 1 else f"{failed} times, the last"
    last_line = last.tail.rpartition("\n")[2].strip() or "no output"
    reason = f"the check failed {times} with exit code {last.exit_code}: {last_line}"
    return AttemptOutcome(ending="unverified", reason=reason)
