"""docs/configuration.md is true: its blocks load, every key and variable is on it, and the defaults are right."""

import re
from pathlib import Path

import pytest

from paceline.agents import AgentProfile
from paceline.settings import governor_settings
from paceline.settings.environment import OTHERS, SETTINGS
from paceline.settings.load import FIXED_TABLES, NAMED_TABLES

from .conftest import Load

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_loads_as_it_stands(block: str, load: Load) -> None:
    load(block)


def test_the_first_block_shows_the_defaults(load: Load) -> None:
    shown, shipped = load(BLOCKS[0]), load("")

    assert shown.engine == shipped.engine
    assert shown.api == shipped.api
    assert shown.retention == shipped.retention
    for pool in ("sessions", "runs"):
        assert shown.limits[pool].limit == shipped.limits[pool].limit
    assert shown.provider("anthropic").cooldown == governor_settings(shipped).cooldown
    assert shown.provider("anthropic").headroom == shipped.provider("anthropic").headroom
    for scope, entry in shipped.limits.items():
        assert shown.limits[scope].limit == entry.limit


def test_every_key_is_on_the_page() -> None:
    keys = [f"`{table}.{key}`" for table, fields in FIXED_TABLES.items() for key in fields]
    keys += [
        f"`{table}.X.{key}`" for table in ("providers", "accounts", "hosts", "key_pools") for key in NAMED_TABLES[table]
    ]

    keys += [f'`rates."SCOPE".{key}`' for key in NAMED_TABLES["rates"]]

    assert [key for key in keys if key not in PAGE] == []


def test_every_variable_is_on_the_page() -> None:
    assert [name for name in (*SETTINGS, *OTHERS) if f"`{name}`" not in PAGE] == []


def test_every_key_of_an_agent_is_shown() -> None:
    assert [key for key in AgentProfile.__struct_fields__ if key != "name" and f"\n{key} = " not in BLOCKS[1]] == []
