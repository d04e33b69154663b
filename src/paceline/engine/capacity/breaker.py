"""The breaker: a campaign whose first units all fail alike pauses itself, before every unit has used its attempts.

Here: when a campaign pauses, and why. Never here: what counts as a failure of one attempt.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from paceline.core.unit_lifecycle import AttemptOutcome, Transition
from paceline.engine.session.live_session import LiveSession
from paceline.redaction import without_secrets
from paceline.store import Campaign, OutcomeRecord, Store, UnitCounts
from paceline.store.rules import split_unit_id

MOST_ALIKE = 5
"""Units that fail alike before their campaign pauses: fewer may be chance, more cost money and time."""
FEWEST_ALIKE = 3
"""The same for a small campaign, where all units that are left have failed. One or two failures prove nothing."""
UNPROVEN_RETRY_SECONDS = 600.0
"""How long a failed unit waits while no unit of its campaign has ended well and others were not tried yet. Once one
has, it waits no longer than after any other failure."""
NEVER_STARTED_SECONDS = 900.0
"""How long a campaign waits for a program that was never there: longer than an upgrade of an agent takes."""
UNREACHED_SECONDS = (5.0, 15.0, 45.0, 150.0, 600.0)
"""Waits of a unit after it reached nobody once, twice, ...: soon longer than its scope waits, so that others try."""
MOST_BLAMED = 3
"""Times that a command may reach nobody although others, begun since its last try, succeed: the cause lies in it."""
MOST_UNREACHED = 12
"""Tries in a row after which the unit of an agent is held if the cause lies in it: about 80 minutes. All units of an
agent share its program and its address, so its folder is to blame, and that is rarer than a bad network."""
FEWEST_BLAMED = 2
"""Of these, the tries since which another session had begun and ended well: one may be chance before an outage."""
MOST_FAULTS_OF_UNIT = 3
"""Times in a row that the setup, check or delivery of one unit may fail so while those of others do their work."""
MOST_FAULTS_OF_STAGES = 2
"""Times in a row that a campaign's setup, check or delivery may be unable to do its work: once may be an accident."""

_VARIABLE_PARTS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\b[0-9a-f]{8,}\b|(?<!exit code )\b\d+")
"""What differs between failures of one cause: quoted names, paths, ids and numbers, but not exit codes."""


class _Counts(msgspec.Struct):
    """What is counted of a campaign: its failures in a row, as far as they are alike and nothing has ended well."""

    gist: str = ""
    units: set[str] = msgspec.field(default_factory=set)
    is_proven: bool = False
    """Whether a unit has ended well since the campaign was last changed."""
    delayed: dict[str, float] = msgspec.field(default_factory=dict)
    """The units that wait for the others, and when they would be tried again otherwise."""
    missing_since: float | None = None
    """Since when no session of it could be started."""
    faults: int = 0
    """How often in a row its setup, its checks or its delivery could not do their work."""
    unchecked: set[str] = msgspec.field(default_factory=set)
    """The units that are held because its check cannot start, since one could."""
    setup_faults: dict[str, int] = msgspec.field(default_factory=dict)
    """How often in a row the workspace of a unit could not be made, though those of others could."""


class _Outage(msgspec.Struct):
    """How often in a row a unit reached nobody."""

    count: int = 0
    blamed: int = 0
    """Of these, how often another session on its account had begun and ended well since the time before."""
    last_at: float = 0.0


class CampaignBreaker:
    """Counts failures that are alike. A success, or a change of the campaign, starts a new count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._outages: dict[str, _Outage] = {}
        self._proven_at: dict[str, float] = {}
        """When the latest attempt that ended well had begun, by its account, or by the campaign of a command."""
        self.has_paused = False
        """Whether a campaign was paused since it was last asked, so that the campaigns must be loaded again."""

    def forget(self, campaign: str) -> None:
        """Start a new count: the campaign was added, changed or resumed."""
        self._counts.pop(campaign, None)

    def delayed(self, record: OutcomeRecord, now: float) -> OutcomeRecord:
        """Let the units that were not tried go before the next attempt of a failed one, until one has ended well."""
        transition = record.transition
        if transition.ending != "failed" or transition.resume_at is None:
            return record
        campaign, _ = split_unit_id(record.unit_id)
        counts = self._counts[campaign]
        if counts.is_proven or not self._store.claimable().get((campaign, None)):
            return record
        counts.delayed[record.unit_id] = transition.resume_at
        later = max(transition.resume_at, now + UNPROVEN_RETRY_SECONDS)
        return msgspec.structs.replace(record, transition=msgspec.structs.replace(transition, resume_at=later))

    def judged(self, session: LiveSession, outcome: AttemptOutcome, now: float) -> AttemptOutcome:
        """Let other units try before one that reached nobody, and find out whether the cause lies in the unit."""
        unit, payer = session.unit, session.payer
        if outcome.ending not in ("unreachable", "not_started"):
            self._outages.pop(unit.id, None)
            if outcome.ending == "succeeded":
                self._proven_at[payer] = max(unit.started_at or 0.0, self._proven_at.get(payer, 0.0))
            return outcome
        outage = self._outages.setdefault(unit.id, _Outage())
        outage.blamed += outage.count > 0 and self._proven_at.get(payer, 0.0) >= outage.last_at
        outage.count += 1
        outage.last_at = now
        # All units of an agent share its program and its address; a command may have its own.
        has_own_program = "{" in "".join(session.campaign.command[:1]) or outcome.ending == "unreachable"
        if outage.blamed >= MOST_BLAMED and session.campaign.agent == "command" and has_own_program:
            del self._outages[unit.id]
            return msgspec.structs.replace(outcome, ending="failed")
        if outage.count >= MOST_UNREACHED and outage.blamed >= FEWEST_BLAMED and outcome.ending == "unreachable":
            del self._outages[unit.id]
            others = f"so it was {outage.count} times in a row, while other sessions on {payer} got answers"
            cause = "the settings in its folder may name another address or proxy"
            return msgspec.structs.replace(outcome, ending="barred", reason=f"{outcome.reason} ({others}: {cause})")
        wait = UNREACHED_SECONDS[min(outage.count, len(UNREACHED_SECONDS)) - 1]
        return msgspec.structs.replace(outcome, resume_at=now + wait)

    def judged_setup(self, unit_id: str, outcome: AttemptOutcome | None) -> AttemptOutcome | None:
        """Count how the workspace of a unit was prepared; None is well. A unit that fails again and again is held."""
        campaign = split_unit_id(unit_id)[0]
        faults = self._counts[campaign].setup_faults
        if outcome is None or outcome.ending == "yielded":
            faults.pop(unit_id, None)
            self.clear_faults(campaign)
        elif outcome.ending == "campaign_fault":
            faults[unit_id] = faults.get(unit_id, 0) + 1
            if faults[unit_id] >= MOST_FAULTS_OF_UNIT:
                del faults[unit_id]
                return msgspec.structs.replace(outcome, ending="barred", resume_at=None)
        return outcome

    def after(self, records: Iterable[OutcomeRecord], now: float) -> list[Campaign]:
        """Count stored outcomes; hasten delayed units of a proven campaign. Returns the campaigns that must pause."""
        reasons: dict[str, str] = {}
        for record in records:
            name, unit = split_unit_id(record.unit_id)
            if (reason := self._reason_after(name, unit, record.transition, now)) is not None:
                reasons.setdefault(name, reason)
        return self._paused(reasons) if reasons else []

    def _paused(self, reasons: Mapping[str, str]) -> list[Campaign]:
        self.has_paused = True
        return [
            msgspec.structs.replace(campaign, state="paused", pause_reason=without_secrets(reasons[campaign.name]))
            for campaign in self._store.campaigns()
            if campaign.name in reasons and campaign.state == "active"
        ]

    def _reason_after(self, name: str, unit: str, transition: Transition, now: float) -> str | None:
        counts = self._counts[name]
        match transition.ending:
            case "succeeded":
                if counts.delayed or not counts.is_proven:
                    self._store.hasten_units(counts.delayed)
                    self._counts[name] = _Counts(is_proven=True, setup_faults=counts.setup_faults)
            case "failed" if not counts.is_proven:
                return self._reason_after_failure(name, unit, transition.reason, counts)
            case "not_started" if not counts.is_proven:
                if counts.missing_since is None or counts.missing_since > now:
                    counts.missing_since = now
                return transition.reason if now - counts.missing_since >= NEVER_STARTED_SECONDS else None
            case "campaign_fault":
                return self._reason_after_fault(name, transition.reason)
        return None

    def after_fault(self, name: str, reason: str) -> list[Campaign]:
        """Count a check or a delivery that could not do its work. Returns the campaign if it must pause."""
        why = self._reason_after_fault(name, reason)
        return self._paused({name: why}) if why is not None else []

    def clear_faults(self, name: str, *, can_check: bool = False) -> None:
        """Start a new count: a setup, check or delivery of the campaign has done its work; or its check can start."""
        self._counts[name].faults = 0
        if can_check:
            self._counts[name].unchecked.clear()

    def after_unchecked(self, name: str, unit_id: str, reason: str) -> list[Campaign]:
        """Count a running unit whose check cannot start. Returns the campaign if it is the second, or the last one."""
        units = self._counts[name].unchecked
        units.add(unit_id)
        left = self._store.counts()[name]
        return self._paused({name: reason}) if len(units) > 1 or left.todo + left.running == 1 else []

    def _reason_after_fault(self, name: str, reason: str) -> str | None:
        self._counts[name].faults += 1
        return reason if self._counts[name].faults >= MOST_FAULTS_OF_STAGES else None

    def _reason_after_failure(self, name: str, unit: str, reason: str, counts: _Counts) -> str | None:
        gist = gist_of(reason, unit)
        if gist != counts.gist:
            counts.gist, counts.units = gist, set()
        counts.units.add(unit)
        units = self._store.counts().get(name, UnitCounts())
        left = units.todo + units.running + units.quarantined + units.unverified + units.held
        if len(counts.units) < max(FEWEST_ALIKE, min(MOST_ALIKE, left)):
            return None
        return f"the first {len(counts.units)} units failed alike, the last with: {reason}"


def gist_of(reason: str, unit: str) -> str:
    """Return the reason without what differs from unit to unit."""
    without_unit = re.sub(rf"(?<!\w){re.escape(unit)}(?!\w)", "#", reason)
    return _VARIABLE_PARTS.sub("#", without_unit.lower())
