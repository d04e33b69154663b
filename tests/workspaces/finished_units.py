"""Stored units with real work in real worktrees, as an engine leaves them."""

import time
from pathlib import Path

import msgspec
from tests.workspaces.conftest import TestRepository, write

from paceline.core.unit_lifecycle import AttemptOutcome, Policy, transition_after
from paceline.store import Campaign, OutcomeRecord, Store, UnitSpec
from paceline.store.unit_result import UnitResult
from paceline.workspaces import WorkspaceLocation, commit_all, location_of, prepare

Files = dict[str, str | None]


def new_repository(top: Path) -> TestRepository:
    top.mkdir(parents=True)
    repository = TestRepository(top, top.parent / "home")
    repository.git("init", "-q")
    repository.write("kept.txt", "kept\n")
    repository.commit("first")
    return repository


def run_units(
    store: Store, repository: TestRepository, home: Path, works: dict[str, Files], host: str | None = None
) -> list[WorkspaceLocation]:
    """Add the campaign `docs`, and carry out its units: each changes files in its workspace, and is done.

    With a `host`, its workspaces are noted as those of another machine.
    """
    now = time.time()
    settings = repository.settings()
    campaign = Campaign(name="docs", command=("true",), workspace=settings)
    specs = [UnitSpec(id=name, prompt="x", cwd=str(repository.top)) for name in works]
    store.add_campaign(campaign, specs, update=False, now=now)
    attempts = [f"attempt-{name}" for name in works]
    units = store.claim_units("docs", "", len(works), attempt_ids=attempts, lease_until=now + 60, now=now)
    places = []
    for unit in units:
        place = location_of(settings, "docs", unit.spec.id, unit.spec.cwd, home, UnitResult())
        prepare(place, settings)
        for path, text in works[unit.spec.id].items():
            Path(place.path, path).unlink() if text is None else write(f"{place.path}/{path}", text)
        change = commit_all(place, f"work of {unit.id}")
        result = UnitResult(
            host=host,
            workspace=place.path,
            branch=place.branch,
            base=place.base,
            repository=place.repository,
            git=place.git,
            **msgspec.structs.asdict(change),
        )
        transition = transition_after(
            unit.counters, AttemptOutcome(ending="succeeded", reason="exit code 0"), Policy(), now
        )
        record = OutcomeRecord(unit_id=unit.id, fence=unit.fence, transition=transition, result=result)
        assert store.record_outcomes([record], now=now) == [True]
        places.append(place)
    return places
