"""A connection is written and undone on real files: the same bytes, mode and links, and either state after an interruption."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings

from ringback.cli.client_files import connection
from ringback.cli.client_files.clients import Client, find_client
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.connection import UndoReport, undo_connection, write_connection
from ringback.cli.client_files.entries import Surroundings
from ringback.cli.client_files.own_entries import Way
from ringback.cli.client_files.plan import Plan, parse_document, plan_connection
from ringback.cli.client_files.records import RecordFolder
from ringback.cli.client_files.safe_files import FileRefused, read_file
from ringback.cli.client_files.text_edits import UnreadableDocument
from tests.support.json_documents import documents

WAY: Final = Way(command=("/opt/ringback/bin/ringback",))
SERVERS: Final = '{\n  "mcpServers": {\n    "git": { "command": "uvx", "args": ["mcp-server-git"] }\n  }\n}\n'


class Stage:
    """The files of one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config" / "ringback" / "mcp.json"
        self.records = RecordFolder(folder / "state")

    def make_file(self, name: str, content: str | bytes = SERVERS) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def connect(self, path: Path, client: str = "cursor", *, meanwhile: Callable[[], Any] = lambda: None) -> Plan:
        chosen = get_client(client)
        file = read_file(path)
        assert file is not None
        document = parse_document(file.text, chosen)
        config_file = read_file(self.config)
        plan = plan_connection(
            document,
            Configuration() if config_file is None else Configuration(config_file.text),
            client=chosen,
            way=WAY,
            surroundings=Surroundings(home=self.folder, folder=None),
        )
        meanwhile()
        if not plan.moved:
            return plan
        write_connection(
            plan,
            client=chosen,
            client_file=file,
            document=document,
            config_path=self.config,
            config_file=config_file,
            records=self.records,
        )
        return plan

    def undo(self, path: Path, client: str = "cursor") -> list[UndoReport]:
        stored = self.records.list_of_file(client, Path(os.path.realpath(path)))
        return [undo_connection(each, client=get_client(client), records=self.records) for each in stored]

    def list_state(self) -> list[Path]:
        return [path for path in (self.folder / "state").rglob("*") if path.is_file()]


def get_client(name: str) -> Client:
    client = find_client(name)
    assert client is not None
    return client


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_undo_gives_the_same_bytes_back_and_leaves_nothing_behind(stage: Stage) -> None:
    path = stage.make_file("mcp.json")

    stage.connect(path)
    connected, config = path.read_text(), json.loads(stage.config.read_text())

    assert json.loads(connected)["mcpServers"]["git"]["command"] == "/opt/ringback/bin/ringback"
    assert config == {"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}
    assert stage.undo(path) == [UndoReport(is_exact=True)]
    assert path.read_text() == SERVERS
    assert (stage.config.exists(), stage.list_state()) == (False, [])


def test_files_with_secrets_are_readable_by_their_user_only(stage: Stage) -> None:
    stage.connect(stage.make_file("mcp.json"))

    modes = [path.stat().st_mode & 0o777 for path in (stage.config, *stage.list_state())]
    assert modes == [0o600, 0o600]
    for folder in (stage.config.parent, stage.folder / "state", stage.folder / "state" / "connections"):
        assert folder.stat().st_mode & 0o077 == 0


def test_an_existing_configuration_keeps_its_text_and_loses_the_rights_of_others(stage: Stage) -> None:
    stage.config.parent.mkdir(parents=True)
    written = (
        '{\n\t// mine\n\t"mcpServers": {\n\t\t"time": {"url": "http://127.0.0.1:1/mcp"},\n\t},\n\t"ringback": {}\n}'
    )
    stage.config.write_text(written)
    stage.config.chmod(0o644)
    path = stage.make_file("mcp.json")

    stage.connect(path)

    assert stage.config.stat().st_mode & 0o777 == 0o600
    assert '\t// mine\n\t"mcpServers": {\n\t\t"time": {"url": "http://127.0.0.1:1/mcp"},\n' in stage.config.read_text()
    stage.undo(path)
    assert stage.config.read_text() == written


def test_the_mode_of_the_client_s_file_and_a_link_to_it_stay(stage: Stage) -> None:
    target = stage.make_file("dotfiles.json")
    target.chmod(0o640)
    link = stage.folder / "mcp.json"
    link.symlink_to(target)

    stage.connect(link)

    assert link.is_symlink()
    assert "ringback" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    stage.undo(link)
    assert target.read_text() == SERVERS


def test_a_file_that_changed_meanwhile_is_not_overwritten(stage: Stage) -> None:
    path = stage.make_file("mcp.json")

    edited = SERVERS.replace("{", '{"x": 1,', 1)

    with pytest.raises(FileRefused, match="changed meanwhile"):
        stage.connect(path, meanwhile=lambda: path.write_text(edited))

    assert path.read_text() == edited
    assert (stage.config.exists(), stage.list_state()) == (False, [])


def test_a_read_only_file_is_left_alone(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    path.chmod(0o444)

    with pytest.raises(FileRefused, match="is read-only"):
        stage.connect(path)

    assert path.read_text() == SERVERS
    assert (stage.config.exists(), stage.list_state()) == (False, [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"mcpServers": {' + b" " * 1024 * 1024 + b"}}", "is larger than 1048576 bytes"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8"),
        (b'{"mcpServers": {}', "is not valid JSON with comments: line 1, column 18"),
        (b'{"mcpServers": []}', "something else than an object in 'mcpServers'"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(stage: Stage, content: bytes, problem: str) -> None:
    path = stage.make_file("mcp.json", content)

    with pytest.raises((FileRefused, ValueError), match=problem):
        stage.connect(path)

    assert path.read_bytes() == content
    assert not stage.config.exists()


@pytest.mark.parametrize("has_config", [False, True])
@pytest.mark.parametrize("writes", range(3))
def test_a_full_disk_leaves_every_file_as_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, writes: int, *, has_config: bool
) -> None:
    """The record, the client's file and the configuration are written; the disk stays full after some of them."""
    path = stage.make_file("mcp.json")
    if has_config:
        stage.config.parent.mkdir(parents=True, exist_ok=True)
        stage.config.write_text('{"mcpServers": {}}')
        stage.config.chmod(0o600)
    written: list[int] = []

    def fill(handle: int) -> None:
        if os.fstat(handle).st_mode & 0o170000 == 0o100000:  # a file, and no folder
            written.append(handle)
            if len(written) > writes:
                raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill)
        with pytest.raises(FileRefused, match="No space left on device"):
            stage.connect(path)

    assert path.read_text() == SERVERS
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(f".{path.name}.")] == []
    assert stage.config.exists() == has_config
    assert not has_config or stage.config.read_text() == '{"mcpServers": {}}'
    assert stage.list_state() == []


class Killed(BaseException):
    """The process ends here, without any cleaning up."""


@pytest.mark.parametrize("step", ["create_file", "commit_replacement"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_an_interrupted_connection_is_completed_or_undone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str, *, is_done: bool
) -> None:
    path = stage.make_file("mcp.json")
    write = getattr(connection, step)

    def stop(*arguments: Any) -> None:
        if is_done:
            write(*arguments)
        raise Killed

    def end(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as interrupted:
        interrupted.setattr(connection, step, stop)
        interrupted.setattr(connection, "undo_connection", end)  # a killed process takes nothing back
        with pytest.raises(Killed):
            stage.connect(path)

    is_connected = "ringback" in path.read_text()
    assert is_connected == (step == "commit_replacement" and is_done)
    if not is_connected:
        stage.connect(path)
    stage.undo(path)
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
    with pytest.raises(FileRefused, match="no record of this version"):
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


def test_servers_that_were_added_later_are_connected_later_and_all_come_back(stage: Stage) -> None:
    path = stage.make_file("mcp.json")
    stage.connect(path)
    document = json.loads(path.read_text())
    document["mcpServers"]["time"] = {"command": "uvx", "args": ["mcp-server-time"]}
    path.write_text(json.dumps(document))

    stage.connect(path)
    stage.undo(path)

    restored = json.loads(path.read_text())["mcpServers"]
    assert restored == {
        "git": {"command": "uvx", "args": ["mcp-server-git"]},
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
    }
    assert not stage.config.exists()


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


def test_two_hundred_servers_move_and_come_back_and_no_further_one_does(stage: Stage) -> None:
    servers = {f"Server {n}": {"command": "run", "args": [str(n)]} for n in range(201)}
    written = json.dumps({"mcpServers": servers})
    path = stage.make_file("mcp.json", written)

    plan = stage.connect(path)

    assert len(plan.moved) == 200
    assert [each.reason for each in plan.servers if each.upstream is None] == ["Ringback serves at most 200 servers"]
    stage.undo(path)
    assert path.read_text() == written


def test_names_that_map_to_the_same_are_numbered_and_equal_servers_are_one(stage: Stage) -> None:
    one, two = {"command": "one"}, {"command": "two"}
    servers = {"GitHub": one, "git hub!": one, "github": two, "Github": one, "???": one, "x" * 30: one, "X" * 30: two}
    path = stage.make_file("mcp.json", json.dumps({"mcpServers": servers}))

    plan = stage.connect(path)

    assert {server.name: server.upstream for server in plan.servers} == {
        "GitHub": "github-2",
        "git hub!": "git-hub",
        "github": "github",
        "Github": "github-2",
        "???": "server",
        "x" * 30: "x" * 24,
        "X" * 30: f"{'x' * 22}-2",
    }


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
