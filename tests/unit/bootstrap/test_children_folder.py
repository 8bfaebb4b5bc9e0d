"""Each process records its upstreams' children in a folder of its own, which survives a kill."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ringback.bootstrap.children_folder import claim_children_folder
from ringback.upstreams.transports.child_records import MARK_VARIABLE, ChildRecords
from tests.support.limits import WAIT_SECONDS

POSTGRES_URL = "postgresql://db/ringback"


def test_with_sqlite_the_folder_is_beside_the_database(tmp_path: Path) -> None:
    with claim_children_folder(f"sqlite:///{tmp_path / 'ringback.db'}") as folder:
        assert folder == tmp_path / "ringback.db-children"


def test_two_nodes_on_one_machine_have_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    with claim_children_folder(POSTGRES_URL) as first, claim_children_folder(POSTGRES_URL) as second:
        assert {first, second} == {tmp_path / "ringback/nodes/0", tmp_path / "ringback/nodes/1"}


def test_the_next_node_gets_the_folder_of_one_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with claim_children_folder(POSTGRES_URL) as ended:
        pass

    with claim_children_folder(POSTGRES_URL) as next_node:
        assert next_node == ended


def test_a_node_that_starts_alone_ends_what_several_killed_nodes_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environment = {"PATH": os.environ["PATH"], MARK_VARIABLE: "left"}
    with claim_children_folder(POSTGRES_URL), claim_children_folder(POSTGRES_URL) as second:
        left = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
        ChildRecords(second).add(left.pid, "left")

        with claim_children_folder(POSTGRES_URL):
            assert left.poll() is None  # its node lives

    with claim_children_folder(POSTGRES_URL):
        assert left.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert second is not None
    assert list(second.iterdir()) == []


def test_a_node_that_may_write_nowhere_runs_without_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))

    with claim_children_folder(POSTGRES_URL) as folder:
        assert folder is None
