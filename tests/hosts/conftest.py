"""Two machines, and repositories of git."""

from pathlib import Path

import pytest
from tests.hosts.two_machines import TwoMachines
from tests.workspaces.conftest import TestRepository
from tests.workspaces.conftest import _no_settings_of_the_user as _no_settings_of_the_user
from tests.workspaces.conftest import make_repository as make_repository
from tests.workspaces.conftest import repository as repository


@pytest.fixture
def machines(tmp_path: Path, repository: TestRepository) -> TwoMachines:
    return TwoMachines(tmp_path, repository)
