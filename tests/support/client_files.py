"""The files of one user: configurations of MCP clients that `ringback connect` writes, and its records."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ringback.cli.client_files.clients import Client, find_client
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.connection import UndoReport, undo_connection, write_connection
from ringback.cli.client_files.entries import Surroundings
from ringback.cli.client_files.own_entries import Way
from ringback.cli.client_files.plan import Plan, parse_document, plan_connection
from ringback.cli.client_files.records import RecordFolder
from ringback.cli.client_files.safe_files import read_file

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
