"""A folder with a paceline.toml, read as a user's would be."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from paceline.errors import InvalidSettings
from paceline.settings import Settings, load_settings

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load(text, environ, flags)` in a folder of its own, with a HOME that has nothing in it."""

    def read(
        text: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> Settings:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        (folder / "paceline.toml").write_bytes(text.encode())
        return load_settings(folder, {"HOME": str(tmp_path / "home"), **(environ or {})}, flags)

    return read


@pytest.fixture
def refused(load: Load, tmp_path: Path) -> Refused:
    """The mistakes of settings that must be refused, with `paceline.toml` for the whole path."""

    def read(*arguments: object) -> list[str]:
        with pytest.raises(InvalidSettings) as caught:
            load(*arguments)
        return [mistake.replace(f"{tmp_path / 'work'}/", "") for mistake in caught.value.mistakes]

    return read
