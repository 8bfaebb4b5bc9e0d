"""The files of a user whose MCP clients are connected."""

from pathlib import Path

import pytest

from tests.support.client_files import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
