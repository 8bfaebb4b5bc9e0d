"""Each process records its upstreams' children in a folder of its own, which survives a kill."""

from pathlib import Path

import pytest

from ringback.bootstrap.children_folder import claim_children_folder

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


def test_a_node_that_may_write_nowhere_runs_without_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))

    with claim_children_folder(POSTGRES_URL) as folder:
        assert folder is None
