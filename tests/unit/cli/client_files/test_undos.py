"""An undo takes Ringback's entries out of a client's file, whatever its user changed since."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.connection import UndoReport
from ringback.cli.client_files.plan import parse_document
from ringback.cli.client_files.records import ConnectionRecord, RecordFolder
from ringback.cli.client_files.safe_files import HISTORY_BYTES_MAX, FileRefused
from ringback.cli.client_files.text_edits import UnreadableDocument
from tests.support.client_files import SERVERS, Stage, get_client
from tests.support.json_documents import documents


def test_an_undo_gives_the_same_bytes_back_and_leaves_nothing_behind(stage: Stage) -> None:
    path = stage.make_file("mcp.json")

    stage.connect(path)
    connected, config = path.read_text(), json.loads(stage.config.read_text())

    assert json.loads(connected)["mcpServers"]["git"]["command"] == "/opt/ringback/bin/ringback"
    assert config == {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}
    assert stage.undo(path) == [UndoReport(is_exact=True)]
    assert path.read_text() == SERVERS
    assert (stage.config.exists(), stage.list_state()) == (False, [])


def test_an_undo_after_an_edit_takes_only_ringback_s_own_entries_back(stage: Stage) -> None:
    path = stage.make_file(
        "mcp.json",
        '{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "time": {"command": "uvx"}}} // mine',
    )
    stage.connect(path)
    edited = path.read_text().replace('"--upstream", "time"', '"--upstream", "other"').replace("mine", "mine, edited")
    path.write_text(edited)

    (report,) = stage.undo(path)

    assert report.left == ("'time' was edited meanwhile and stays.",)
    assert list(Configuration(stage.config.read_text()).servers) == ["time"]
    document = parse_document(path.read_text(), get_client("cursor"))
    assert document.get(("mcpServers", "git")) == {"command": "uvx", "args": ["mcp-server-git"]}
    assert document.get(("mcpServers", "time", "args")) == ["mcp", "--upstream", "other"]
    assert path.read_text().endswith("// mine, edited")


@pytest.mark.parametrize("end", ["}", " }"])
def test_an_undo_after_an_edit_leaves_no_space_behind_in_an_entry_on_one_line(stage: Stage, end: str) -> None:
    entry = f'{{"command": "uvx", "args": ["mcp-server-git"], "env": {{"A": "1"}}{end}'
    before = f'{{"mcpServers": {{"git": {entry}}}}}\n'
    path = stage.make_file("mcp.json", before)
    stage.connect(path)
    assert path.read_text().endswith(f'"git"]{end}}}}}\n')
    path.write_text(f"\n{path.read_text()}")

    assert stage.undo(path) == [UndoReport(is_exact=False)]

    assert path.read_text() == f"\n{before}"


def test_half_a_character_in_an_entry_is_an_escape_again_after_an_undo(stage: Stage) -> None:
    before = '{"mcpServers": {"git": {"command": "uvx", "oauth": {"note": "\\ud83d"}}}}\n'
    path = stage.make_file("mcp.json", before)
    stage.connect(path)
    path.write_text(f"\n{path.read_text()}")

    assert stage.undo(path) == [UndoReport(is_exact=False)]

    assert path.read_text() == f"\n{before}"


def test_what_the_user_added_to_an_entry_stays_after_an_undo(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    stage.connect(path)
    path.write_text(path.read_text().replace('"args"', '"timeout": 5, "args"'))

    assert stage.undo(path) == [UndoReport(is_exact=False)]
    assert json.loads(path.read_text())["mcpServers"]["git"] == {
        "command": "uvx",
        "args": ["mcp-server-git"],
        "timeout": 5,
    }


def test_the_record_of_a_large_file_can_be_changed(stage: Stage) -> None:
    """A record holds the file's text as JSON, which escapes its quotes."""
    path = stage.make_file("mcp.json")
    stage.connect(path)
    (stored,) = stage.records.list_others(Path())
    record = json.loads(stored.read_text())
    stored.write_text(json.dumps({**record, "before": '"' * (HISTORY_BYTES_MAX // 2 + 1)}))

    stage.records.keep_servers(stored, {"git"})

    assert [server.upstream for server in stage.records.read(stored).servers] == ["git"]


def test_a_record_is_kept_of_a_file_whose_name_is_no_text_and_beside_a_copied_record(tmp_path: Path) -> None:
    records = RecordFolder(tmp_path)
    record = ConnectionRecord(
        client="cursor",
        file=os.fsdecode(b"/\xff.json"),
        before="",
        after_sha256="",
        servers=(),
        config="/mcp.json",
        config_before=None,
        config_after_sha256="",
        added={},
    )

    first = records.add(record)
    first.with_name(f"{first.stem} copy.json").write_bytes(first.read_bytes())
    second = records.add(record)

    assert (records.read(second), second.stem) == (record, first.stem.replace("0001", "0002"))


def test_a_file_that_is_gone_or_broken_and_a_broken_record_are_named(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    stage.connect(path)
    path.write_text("{")
    with pytest.raises(UnreadableDocument, match="is not valid JSON"):
        stage.undo(path)
    path.unlink()
    (record,) = stage.list_state()
    (record.parent / "other-0001.json").write_text('{"version": 0}')

    (report,) = stage.undo(path)
    assert report.left == (f"{path} is gone. Its servers stay in {stage.config}, and their record stays.",)
    assert list(Configuration(stage.config.read_text()).servers) == ["git"]
    assert record.exists()
    with pytest.raises(FileRefused, match="with the version that wrote it, or by hand"):
        stage.records.read(record.parent / "other-0001.json")


def test_entries_that_the_user_renamed_or_copied_get_their_settings_back(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    stage.connect(path)
    written = json.loads(path.read_text())["mcpServers"]["git"]
    path.write_text(json.dumps({"mcpServers": {"my-git": written, "copy": {**written, "timeout": 5}}}))

    assert stage.undo(path) == [UndoReport(is_exact=False)]
    settings = {"command": "uvx", "args": ["mcp-server-git"]}
    assert json.loads(path.read_text())["mcpServers"] == {"my-git": settings, "copy": {"timeout": 5, **settings}}
    assert (stage.config.exists(), stage.list_state()) == (False, [])


def test_an_entry_that_was_renamed_and_edited_keeps_its_server_and_its_record_until_it_can_be_undone(
    stage: Stage,
) -> None:
    two = '{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "time": {"command": "uvx"}}}'
    path = stage.make_file("mcp.json", two)
    stage.connect(path)
    servers = json.loads(path.read_text())["mcpServers"]
    renamed = {**servers["git"], "command": "/elsewhere/ringback"}
    path.write_text(json.dumps({"mcpServers": {"my-git": renamed, "time": servers["time"]}}))

    (report,) = stage.undo(path)

    assert report.left == ("'my-git' was edited meanwhile and stays.",)
    assert list(Configuration(stage.config.read_text()).servers) == ["git"]
    path.write_text(json.dumps({"mcpServers": {"my-git": servers["git"], "time": {"command": "uvx"}}}))
    assert stage.undo(path) == [UndoReport(is_exact=False)]
    assert json.loads(path.read_text())["mcpServers"] == {
        "my-git": {"command": "uvx", "args": ["mcp-server-git"]},
        "time": {"command": "uvx"},
    }
    assert (Configuration(stage.config.read_text()).servers if stage.config.exists() else {}, stage.list_state()) == (
        {},
        [],
    )


def test_an_entry_that_the_user_removed_stays_removed(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    stage.connect(path)
    path.write_text('{"mcpServers": {}}')

    assert stage.undo(path) == [UndoReport(is_exact=False)]
    assert path.read_text() == '{"mcpServers": {}}'


@pytest.mark.parametrize("first_undone", ["cursor", "windsurf"])
def test_two_clients_with_one_server_share_its_upstream_until_both_are_undone(stage: Stage, first_undone: str) -> None:
    paths = {client: stage.make_file(f"{client}.json") for client in ("cursor", "windsurf")}
    for client, path in paths.items():
        stage.connect(path, client)
    assert list(Configuration(stage.config.read_text()).servers) == ["git"]

    stage.undo(paths[first_undone], first_undone)
    assert list(Configuration(stage.config.read_text()).servers) == ["git"]

    (other,) = set(paths) - {first_undone}
    stage.undo(paths[other], other)
    assert not stage.config.exists()
    assert [path.read_text() for path in paths.values()] == [SERVERS, SERVERS]


@given(documents())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_has_its_bytes_again_after_an_undo(stage: Stage, document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    path = stage.make_file("mcp.json", text)

    plan = stage.connect(path)

    after = parse_document(path.read_bytes().decode(), get_client("cursor"))
    assert {**after.value, "mcpServers": None} == {**value, "mcpServers": None}
    assert [each.name for each in plan.servers] == list(value["mcpServers"])
    stayed = [each for each in plan.servers if each.upstream is None]
    assert all(after.get(each.path) == value["mcpServers"][each.name] for each in stayed)
    assert stage.undo(path) == [UndoReport(is_exact=True)][: len(plan.moved)]
    assert path.read_bytes() == text.encode()
    assert not stage.config.exists()
