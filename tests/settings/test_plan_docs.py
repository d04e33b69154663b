"""docs/plan-files.md and README.md are true: their plans can be read, and every key is on the page."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.settings import load_settings
from paceline.settings import plan_file as plan
from paceline.settings import plan_units as plan_sources
from paceline.settings.plan_file import CAMPAIGN_FIELDS, WORKSPACE_FIELDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plan-files.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE + (ROOT / "README.md").read_text("utf-8"), re.S | re.M)
FILES = {
    "tasks/one.md": "Do it.",
    "modules.csv": "module,language\nparser,Rust\n",
    "tickets.jsonl": '{"id": "T-1", "title": "It breaks", "service": "a"}\n',
    "brief.md": "Shared.\n## One\nDo it.\n",
    "services/a/keep": "",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_plan_of_the_pages_can_be_read(block: str, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "plan.toml").write_text(block)
    if "worktree" in block:
        for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "tasks")):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=tmp_path, check=True)
    account = {"provider": "anthropic", "kind": "subscription"}
    settings = load_settings(tmp_path, {"HOME": "/"}, {"accounts": {"max-1": account, "max-2": account}})

    assert plan.read_plan(tmp_path / "plan.toml", settings, now=0.0).units


def test_every_key_is_on_the_page() -> None:
    known = {*CAMPAIGN_FIELDS, *plan.UNIT_FIELDS, *plan_sources.SOURCES}

    assert [key for key in sorted(known) if f"| `{key}` |" not in PAGE] == []


@pytest.mark.parametrize(("title", "fields"), [("campaign", CAMPAIGN_FIELDS), ("campaign.workspace", WORKSPACE_FIELDS)])
def test_a_table_of_the_page_has_the_keys_that_are_read(title: str, fields: Mapping[str, object]) -> None:
    section = PAGE.partition(f"\n## [{title}]\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == set(fields)
