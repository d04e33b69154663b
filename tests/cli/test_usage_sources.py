"""Usage polls follow the settings file: a changed address or key counts without a restart."""

from pathlib import Path

import pytest

from paceline.core.signals import Usage
from paceline.daemon.engines import usage_sources
from paceline.settings import load_settings
from paceline.testing.provider import FakeProvider, Step

FILE = """
[providers.umans]
usage_url = "{url}/usage"
[accounts.work]
provider = "umans"
kind = "metered"
key_env = "{key}"
"""


async def test_a_changed_usage_url_or_key_counts_at_the_next_poll(tmp_path: Path) -> None:
    file = tmp_path / "paceline.toml"
    environ = {"HOME": str(tmp_path), "OLD_KEY": "old", "NEW_KEY": "new"}
    async with FakeProvider() as before, FakeProvider() as after:
        after.add_step(Step(error="401", keys="old", endpoint="usage", times=None))
        file.write_text(FILE.format(url=before.url, key="OLD_KEY"), "utf-8")
        (source,) = usage_sources(load_settings(tmp_path, environ), environ).values()
        assert isinstance(await source(), Usage)

        file.write_text(FILE.format(url=after.url, key="OLD_KEY") + "# moved\n", "utf-8")
        assert await source() is None  # this address does not know the old key

        file.write_text(FILE.format(url=after.url, key="NEW_KEY") + "# moved, with its key\n", "utf-8")
        assert isinstance(await source(), Usage)
        assert (before.usage_polls, after.usage_polls) == (1, 2)


async def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "paceline.toml"
    environ = {"HOME": str(tmp_path), "OLD_KEY": "old"}
    async with FakeProvider() as provider:
        file.write_text(FILE.format(url=provider.url, key="OLD_KEY"), "utf-8")
        (source,) = usage_sources(load_settings(tmp_path, environ), environ).values()
        file.write_text("[providers.umans\n", "utf-8")
        assert isinstance(await source(), Usage)
        assert isinstance(await source(), Usage)
        assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1
