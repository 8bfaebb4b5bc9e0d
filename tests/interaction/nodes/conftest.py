"""Two nodes over one database, an upstream whose tools the test ends, and a receiver."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.application import CallbackReceiver, serving_callbacks
from tests.support.clock import FakeClock
from tests.support.databases import migrated_postgres
from tests.support.engine import Engine
from tests.support.keyed_nodes import node_with
from tests.support.nodes import Cluster, running_cluster
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

NEVER = 3600.0
"""A poll interval that no test waits for."""


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes record their upstreams' child processes in the user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@dataclass(slots=True)
class Site:
    cluster: Cluster
    stage: ControlledUpstream
    phone: CallbackReceiver


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        serving_callbacks() as phone,
        running_cluster(tmp_path, make_http_config(server.url)) as cluster,
    ):
        yield Site(cluster, stage, phone)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def nodes(fake_clock: FakeClock) -> AsyncGenerator[tuple[Engine, Engine]]:
    """One node without the new key, and one that already seals with it."""
    with migrated_postgres() as url:
        async with (
            node_with(url, fake_clock, "old") as without,
            node_with(url, fake_clock, "new", "old") as having,
        ):
            yield without, having
