"""docs/plan-files.md is true: its plans can be read, and every key is on the page."""

import re
from pathlib import Path

import pytest

from paceline.plans import plan_file as plan
from paceline.plans import unit_sources as plan_sources
from paceline.plans.campaign_fields import CAMPAIGN_FIELDS
from paceline.settings import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "plan-files.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)
FILES = {
    "tasks/one.md": "Do it.",
    "modules.csv": "module,language\nparser,Rust\n",
    "tickets.jsonl": '{"id": "T-1", "title": "It breaks", "service": "a"}\n',
    "brief.md": "Shared.\n## One\nDo it.\n",
    "services/a/keep": "",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_plan_of_the_page_can_be_read(block: str, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "plan.toml").write_text(block)
    account = {"provider": "anthropic", "kind": "subscription"}
    settings = load_settings(tmp_path, {"HOME": "/"}, {"accounts": {"max-1": account, "max-2": account}})

    assert plan.read_plan(tmp_path / "plan.toml", settings, now=0.0).units


def test_every_key_is_on_the_page() -> None:
    known = {*CAMPAIGN_FIELDS, *plan.UNIT_FIELDS, *plan_sources.SOURCES}

    assert [key for key in sorted(known) if f"| `{key}` |" not in PAGE] == []
