"""A connection is written and undone on real files: the same bytes, mode and links, and either state after an interruption."""

import errno
import json
import os
from typing import Any

import pytest

from ringback.cli.client_files import connection
from ringback.cli.client_files.safe_files import FileRefused
from tests.support.client_files import SERVERS, Stage


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


@pytest.mark.parametrize("has_links", [True, False])
def test_a_configuration_that_another_command_makes_at_the_same_moment_is_not_replaced(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    path, other = stage.make_file("mcp.json"), '{"mcpServers": {"time": {"command": "uvx"}}}'
    sync = os.fsync

    def make_configuration(handle: int) -> None:
        """Before the configuration of this command has its name."""
        sync(handle)
        if stage.config.parent.exists():
            stage.config.write_text(other)

    def refuse_link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", make_configuration)
    if not has_links:
        monkeypatch.setattr(os, "link", refuse_link)
    with pytest.raises(FileRefused, match="was made meanwhile"):
        stage.connect(path)

    assert (stage.config.read_text(), path.read_text()) == (other, SERVERS)
    assert [each.name for each in stage.config.parent.iterdir()] == [stage.config.name]


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
