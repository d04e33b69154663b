"""What came of the demo: figures, and the table and lines that show them."""

import msgspec
from rich.table import Table

from paceline.cli.demo.progress import Batch
from paceline.cli.demo.scenario import Stage


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the contested sessions that a campaign was given, and the part its priority stands for."""

    campaign: str
    priority: int
    got: float
    due: float
    done_at: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that is counted. Times are seconds."""

    units: int
    done: int
    attempts: int
    """Charged ones: only a real failure of the work counts."""
    sessions: int
    parked: int
    resumed: int
    """Sessions that went on with a conversation."""
    conversations: int
    """As the provider saw them: as many as units, so none was begun twice."""
    steps: int
    answers: int
    """As many as steps: none was asked for twice."""
    refusals: int
    reopenings: int
    peak_sessions: int
    shares: tuple[Share, ...]
    seconds: float

    @property
    def lost(self) -> int:
        return self.units - self.done


def figures(stage: Stage, now: float) -> Figures:
    """From the store and the provider's own journal, not from what was shown."""
    ledger, units = stage.ledger, stage.units()
    served = [request for request in stage.provider.requests if request.ending == "served"]
    return Figures(
        units=ledger.total,
        done=sum(unit.state == "done" for unit in units),
        attempts=sum(unit.counters.failures for unit in units),
        sessions=sum(unit.counters.tries for unit in units),
        parked=sum(unit.counters.parks for unit in units),
        resumed=ledger.resumed,
        conversations=len({request.session for request in served}),
        steps=ledger.total * stage.plan.steps,
        answers=len(served),
        refusals=stage.provider.rate_limited,
        reopenings=ledger.reopenings,
        peak_sessions=ledger.peak_sessions,
        shares=shares(ledger.batches),
        seconds=now - ledger.started_at,
    )


def shares(batches: list[Batch]) -> tuple[Share, ...]:
    """A level of priority is worth twice the one below."""
    given = max(1, sum(batch.contested for batch in batches))
    weights = sum(2.0**batch.priority for batch in batches)
    return tuple(
        Share(
            campaign=batch.name,
            priority=batch.priority,
            got=batch.contested / given,
            due=2.0**batch.priority / weights,
            done_at=batch.done_at,
        )
        for batch in batches
    )


def rows(found: Figures) -> list[tuple[str, str]]:
    """The summary as names and values."""
    return [
        ("units done", f"{found.done} of {found.units}, {found.lost or 'none'} lost"),
        ("attempts charged", f"{found.attempts}: being refused is no failure"),
        ("429s met", str(found.refusals)),
        ("quota window", f"closed and reopened by a canary {found.reopenings} time{'s' * (found.reopenings != 1)}"),
        ("parked", f"{found.parked} times; {found.resumed} sessions went on with their conversation"),
        ("answers", f"{found.answers} for {found.steps} steps of work, in {found.conversations} conversations"),
        ("sessions", f"{found.sessions}, never more than {found.peak_sessions} at once"),
        *((f"share of {share.campaign}", _share_words(share)) for share in found.shares),
        ("time", f"{found.seconds:.0f} s"),
    ]


def _share_words(share: Share) -> str:
    done = "" if share.done_at is None else f", done after {share.done_at:.0f} s"
    return f"{share.got:.0%} while both had work (due {share.due:.0%}){done}"


def summary_table(found: Figures) -> Table:
    table = Table(title="What the engine did", title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows(found):
        table.add_row(name, value)
    return table
