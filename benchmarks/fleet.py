"""How far one leader goes: hosts, accounts, sessions and units in virtual time, and the cost of each decision.

    python -m benchmarks.fleet             50 hosts, 1,000 accounts, 10,000 sessions, 1,000,000 units; some minutes
    python -m benchmarks.fleet --quick     5 hosts, 100 accounts, 1,000 sessions, 20,000 units

The parts that decide run as they do in an engine: Governor, ticket queues, placement, and a store in memory. Sessions
are numbers in a heap. Links of hosts are cut for a while, hosts are lost with their sessions, windows of accounts
close, and the leader changes: the next one restores what was learnt and adopts what runs. At the end no unit was lost,
doubled or charged. The costs are compared with those of a tenth of the fleet, in the same run.
"""

import heapq
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import msgspec

from paceline.agents.account import Account, login_on, split_login
from paceline.core import Governor, GovernorSettings, Granted, Ticket
from paceline.core.signals import QuotaClosed
from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.engine.capacity.governor_state import load_governor, save_governor
from paceline.engine.dispatch.ticket_queues import TicketQueues, unit_ticket
from paceline.engine.settings import EngineSettings
from paceline.hosts.messages import HostCli, HostFacts, HostState, Login, Presence
from paceline.settings import HostSettings
from paceline.store import Campaign, OutcomeRecord, SqliteStore, Unit, UnitSpec

NOW = 1_794_705_600.0
CAMPAIGNS = 10
PASS_SECONDS = 5.0
SHORTEST, LONGEST = 60.0, 900.0
"""Seconds that a session takes."""
SILENT_SECONDS = 120.0
DONE = AttemptOutcome(ending="succeeded", reason="done")
LOST = AttemptOutcome(ending="lost", reason="its host was lost")


class Size(msgspec.Struct, frozen=True):
    hosts: int
    accounts: int
    sessions: int
    units: int
    passes: int

    @property
    def text(self) -> str:
        return f"{self.hosts} hosts, {self.accounts:,} accounts, {self.sessions:,} sessions, {self.units:,} units"


FULL = Size(hosts=50, accounts=1_000, sessions=10_000, units=1_000_000, passes=100)
TENTH = Size(hosts=5, accounts=100, sessions=1_000, units=100_000, passes=100)
QUICK = Size(hosts=5, accounts=100, sessions=1_000, units=20_000, passes=60)
QUICK_TENTH = Size(hosts=2, accounts=10, sessions=100, units=2_000, passes=60)


class Costs(msgspec.Struct):
    """What was measured: seconds per kind of work, and how much of it was done."""

    seconds: dict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = msgspec.field(default_factory=Counter)

    def timed(self, kind: str, work: Callable[[], object]) -> object:
        """Do a piece of work, and add the time it takes."""
        began = time.process_time()
        result = work()
        self.seconds[kind] += time.process_time() - began
        return result


class SimulatedFleet:
    """A leader over a store, hosts that come and go, and sessions that end at known times."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        self.size = size
        self.random = random.Random(seed)
        self.now = NOW
        self.costs = Costs()
        self.names = [f"max-{number}" for number in range(size.accounts)]
        accounts = {name: Account(name=name, provider="anthropic") for name in self.names}
        per_account = max(1, 2 * size.sessions // size.accounts)
        limits: dict[str, int | None] = {f"anthropic/{name}": per_account for name in self.names}
        limits["sessions"] = size.sessions
        self.settings = EngineSettings(governor=GovernorSettings(limits=limits, cooldown=0.0), accounts=accounts)
        self.hosts = [f"box{number}" for number in range(size.hosts)]
        self.presence: dict[str, Presence] = dict.fromkeys(self.hosts, "joined")
        self.returns: list[tuple[float, str]] = []
        self.facts = {host: _facts(self.names[number :: size.hosts]) for number, host in enumerate(self.hosts)}
        self.store = SqliteStore.in_memory()
        self.live: dict[str, Unit] = {}
        self.ends: list[tuple[float, str]] = []
        self.leaders = 0
        self._add_campaigns()
        self.lead()

    def _add_campaigns(self) -> None:
        units = self.size.units // CAMPAIGNS
        for number in range(CAMPAIGNS):
            campaign = Campaign(
                name=f"night{number}", agent="claude", accounts=tuple(self.names[number::CAMPAIGNS]), hosts=("box*",)
            )
            specs = (UnitSpec(id=str(unit), prompt="x") for unit in range(units))
            self.store.add_campaign(campaign, specs, update=False, now=NOW)
        self.campaigns = {campaign.name: campaign for campaign in self.store.campaigns()}

    def lead(self) -> None:
        """Become the next leader: restore what was learnt, and adopt what runs."""
        self.leaders += 1
        self.governor = load_governor(self.store, self.settings.governor, self.now)
        accounts = self.settings.campaign_accounts
        for unit in self.store.running_units():
            ticket = unit_ticket(unit, self.campaigns[unit.campaign], accounts, unit.attempt_id or "")
            self.governor.adopt(ticket, now=self.now)
        self.queues = TicketQueues(
            self.governor, self.settings, f"leader{self.leaders}", hosts=lambda _: self._states()
        )

    def _states(self) -> list[HostState]:
        most = 2 * self.size.sessions // self.size.hosts
        return [
            HostState(
                name=host,
                settings=HostSettings(name=host, max_sessions=most),
                presence=self.presence[host],
                facts=self.facts[host],
                heard_at=self.now,
            )
            for host in self.hosts
        ]

    # -- one pass ------------------------------------------------------------------------------

    def make_pass(self) -> None:
        """End what is over, fill the queues, and start what is granted, as an engine does."""
        costs = self.costs
        over = self._over()
        costs.timed("record", lambda: self._end(over, DONE))
        self.store.wake_units(now=self.now)
        costs.timed("fill", lambda: self.queues.fill(self.campaigns.values(), self.store.claimable(), self.now))
        costs.timed("grant and claim", self._start_granted)
        costs.counts["passes"] += 1
        costs.counts["ends"] += len(over)

    def _over(self) -> list[Unit]:
        over = []
        while self.ends and self.ends[0][0] <= self.now:
            _, attempt = heapq.heappop(self.ends)
            if attempt in self.live:
                over.append(self.live.pop(attempt))
        return over

    def _end(self, units: list[Unit], outcome: AttemptOutcome) -> None:
        records = [
            OutcomeRecord(
                unit_id=unit.id,
                fence=unit.fence,
                transition=transition_after(unit.counters, outcome, Policy(), self.now),
            )
            for unit in units
        ]
        assert all(self.store.record_outcomes(records, now=self.now)), "an outcome was refused: a unit ran twice"
        for unit in units:
            self.governor.release(unit.attempt_id or "", now=self.now)

    def _start_granted(self) -> None:
        granted: dict[tuple[str, str], list[str]] = {}
        for effect in self.governor.advance(now=self.now):
            if isinstance(effect, Granted) and effect.ticket_id in self.queues.by_ticket:
                queue = self.queues.by_ticket[effect.ticket_id]
                granted.setdefault((queue.campaign.name, queue.login), []).append(effect.ticket_id)
        for (campaign, login), tickets in granted.items():
            units = self.store.claim_units(
                campaign, login, len(tickets), attempt_ids=tickets, lease_until=self.now + 60.0, now=self.now
            )
            for unit, ticket in zip(units, tickets, strict=False):
                self.queues.take(ticket)
                self.live[ticket] = unit
                heapq.heappush(self.ends, (self.now + self.random.uniform(SHORTEST, LONGEST), ticket))
            self.queues.give_back(tickets[len(units) :], self.now)
            self.costs.counts["grants"] += len(units)

    # -- what happens to fleets -----------------------------------------------------------------

    def disturb(self) -> None:
        """Do one thing that happens to fleets, and let hosts return."""
        while self.returns and self.returns[0][0] <= self.now:
            self.presence[heapq.heappop(self.returns)[1]] = "joined"
        host = self.random.choice(self.hosts)
        match self.random.randrange(4):
            case 0 if self.presence[host] == "joined":
                self.presence[host] = "silent"  # its sessions continue, and it returns
                heapq.heappush(self.returns, (self.now + SILENT_SECONDS, host))
            case 1 if self.presence[host] == "joined":
                self.presence[host] = "lost"
                lost = [ticket for ticket, unit in self.live.items() if split_login(unit.account or "")[1] == host]
                self._end([self.live.pop(ticket) for ticket in lost], LOST)
                heapq.heappush(self.returns, (self.now + 2 * SILENT_SECONDS, host))
            case 2:
                scope = f"anthropic/{self.random.choice(self.names)}"
                self.governor.report(scope, QuotaClosed(window="five_hour", resets_at=self.now + 300.0), now=self.now)
            case 3:
                save_governor(self.store, self.governor)
                self.costs.timed("leader change", self.lead)
                self.costs.counts["leader changes"] += 1

    def check(self) -> None:
        """Raise if a unit was lost, doubled or charged."""
        running = {unit.attempt_id for unit in self.store.running_units()}
        assert running == self.live.keys(), "a unit runs that nobody knows, or the other way round"
        logins = Counter(unit.account for unit in self.live.values())
        assert all(login_on(*split_login(login or "")) for login in logins)
        total = sum(counts.todo + counts.running + counts.done for counts in self.store.counts().values())
        assert total == self.size.units // CAMPAIGNS * CAMPAIGNS, "units were lost or stopped"
        assert all(unit.counters.failures == 0 for unit in self.live.values()), "a unit was charged"


def _facts(accounts: list[str]) -> HostFacts:
    logins = tuple(Login(account=each) for each in accounts)
    clis = (HostCli(agent="claude", version="2"),)
    return HostFacts(
        version="1", machine="", hostname="", home="", user_home="", cpus=64, memory=0, logins=logins, clis=clis
    )


# -- single costs --------------------------------------------------------------------------------


def grant_cost(waiters: int, sessions: int = 1_000, groups: int = 10) -> float:
    """Return the seconds of one release and the grant that follows, with so many tickets waiting."""
    governor = Governor(GovernorSettings(limits={"sessions": sessions}, cooldown=0.0), now=NOW)
    scopes = ("sessions", "anthropic", "anthropic/max-1")
    for number in range(sessions + waiters):
        governor.request(Ticket(f"t-{number}", scopes, group=f"g{number % groups}", leased=False), now=NOW)
    rounds = min(sessions, 500)
    began = time.process_time()
    for number in range(rounds):
        governor.release(f"t-{number}", now=NOW + 1.0 + number)
    return (time.process_time() - began) / rounds


def change_cost(changed: int, accounts: int = 1_000) -> float:
    """Return the seconds in which the windows of so many accounts close and reopen, with all accounts waited for."""
    limits: dict[str, int | None] = {f"anthropic/max-{number}": 1 for number in range(accounts)}
    governor = Governor(GovernorSettings(limits=limits, cooldown=0.0), now=NOW)
    for number in range(4 * accounts):
        scopes = ("sessions", "anthropic", f"anthropic/max-{number % accounts}")
        governor.request(Ticket(f"t-{number}", scopes, group=f"g{number % 10}", leased=False), now=NOW)
    governor.advance(now=NOW)
    began = time.process_time()
    for number in range(changed):
        closed = QuotaClosed(window="five_hour", resets_at=NOW + 100.0)
        governor.report(f"anthropic/max-{number}", closed, now=NOW + 1.0)
    governor.advance(now=NOW + 200.0)
    return time.process_time() - began


# -- the report ----------------------------------------------------------------------------------


def run_fleet(size: Size) -> SimulatedFleet:
    """Run a fleet through its troubles, and check it."""
    fleet = SimulatedFleet(size)
    for number in range(size.passes):
        fleet.make_pass()
        if number % 5 == 4:
            fleet.disturb()
        fleet.now += PASS_SECONDS
    fleet.check()
    return fleet


def report(fleet: SimulatedFleet) -> dict[str, float]:
    """Print what the fleet did and cost. Returns the costs by name, in microseconds."""
    seconds, counts = fleet.costs.seconds, fleet.costs.counts
    work = sum(seconds[kind] for kind in ("record", "fill", "grant and claim"))
    costs = {
        "fill per pass": 1e6 * seconds["fill"] / counts["passes"],
        "fill per login and pass": 1e6 * seconds["fill"] / counts["passes"] / fleet.size.accounts,
        "per unit (grant, claim, end)": 1e6 * (work - seconds["fill"]) / max(1, counts["grants"]),
        "leader change per session": 1e6
        * seconds["leader change"]
        / max(1, counts["leader changes"])
        / max(1, len(fleet.live)),
    }
    print(f"{fleet.size.text}: {counts['grants']:,} granted, {len(fleet.live):,} run")
    for name, cost in costs.items():
        print(f"  {name:<32}{cost:>12,.1f} µs")
    return costs


def single_costs() -> Iterator[str]:
    """Yield lines about the growth of single costs."""
    few, many = (min(grant_cost(waiters) for _ in range(3)) for waiters in (1_000, 64_000))
    yield f"a grant with 64,000 waiters costs {many / few:.2f} times one with 1,000 ({1e6 * many:.0f} µs)"
    few, many = (min(grant_cost(2_000, sessions) for _ in range(3)) for sessions in (1_000, 10_000))
    yield f"a grant beside 10,000 sessions costs {many / few:.2f} times one beside 1,000 ({1e6 * many:.0f} µs)"
    few, many = (min(change_cost(changed) for _ in range(3)) for changed in (100, 1_000))
    yield f"1,000 changed scopes cost {many / few:.2f} times 100 ({1e3 * many:.0f} ms)"


def main() -> None:
    is_quick = "--quick" in sys.argv
    small = report(run_fleet(QUICK_TENTH if is_quick else TENTH))
    large = report(run_fleet(QUICK if is_quick else FULL))
    for name, cost in large.items():
        print(f"{name}: {cost / small[name]:.2f} times that of a tenth of the fleet")
    for line in single_costs():
        print(line)


if __name__ == "__main__":
    main()
