"""A session that would bill a key is not started: its unit is held, with the file and the name of the key."""

import json
from pathlib import Path

import pytest

from paceline.store import UnitSpec
from paceline.testing.engine_harness import EngineHarness

KEY = "sk-ant-secret"


def unit_in(folder: Path, settings: dict[str, object]) -> UnitSpec:
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(settings))
    return UnitSpec(id="a", prompt="hi", cwd=str(folder))


@pytest.mark.parametrize("accounts", [("max-1",), ()])
async def test_a_key_in_the_projects_settings_holds_the_unit_before_the_first_request(
    tmp_path: Path, accounts: tuple[str, ...]
) -> None:
    async with EngineHarness() as harness:
        harness.add_claude("docs", [unit_in(tmp_path, {"env": {"ANTHROPIC_API_KEY": KEY}})], accounts=accounts)
        await harness.run(120.0)

        unit = harness.unit("docs/a")
        assert (unit.state, unit.counters.failures, harness.executor.started) == ("held", 0, [])
        assert f"{tmp_path}/.claude/settings.json: env.ANTHROPIC_API_KEY would bill this key" in str(unit.reason)
        assert KEY not in str(unit.reason)
        assert [event.unit for event in harness.events("unit.held")] == ["docs/a"]


async def test_units_in_other_folders_go_on(tmp_path: Path) -> None:
    clean = UnitSpec(id="b", prompt="hi", cwd=str(tmp_path))

    async with EngineHarness() as harness:
        harness.add_claude("docs", [unit_in(tmp_path / "project", {"apiKeyHelper": "echo x"}), clean])
        await harness.run(30.0)

        assert (harness.unit("docs/a").state, harness.launched()) == ("held", ["docs/b"])


async def test_a_plan_without_accounts_may_accept_it(tmp_path: Path) -> None:
    async with EngineHarness() as harness:
        spec = unit_in(tmp_path, {"apiKeyHelper": "echo x"})
        harness.add_claude("docs", [spec], accounts=(), allow_metered=True)
        await harness.run(30.0)

        assert harness.launched() == ["docs/a"]


async def test_a_subscription_account_never_accepts_it(tmp_path: Path) -> None:
    async with EngineHarness() as harness:
        harness.add_claude("docs", [unit_in(tmp_path, {"apiKeyHelper": "echo x"})], allow_metered=True)
        await harness.run(120.0)

        assert harness.states() == {"docs/a": "held"}


async def test_once_the_file_is_mended_a_retry_runs_the_unit(tmp_path: Path) -> None:
    async with EngineHarness() as harness:
        harness.add_claude("docs", [unit_in(tmp_path, {"apiKeyHelper": "echo x"})])
        await harness.run(120.0)
        (tmp_path / ".claude" / "settings.json").write_text("{}")
        harness.store.retry_units("docs")
        harness.send("campaigns")
        await harness.run(30.0)

        assert harness.launched() == ["docs/a"]
