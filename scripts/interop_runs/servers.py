"""The servers of the matrix, which Ringback is put in front of. The client is the MCP SDK for Python 1.x.

Servers with the tools of the matrix (`script`, or another Ringback) go through the scenarios of a client. Servers that others
wrote are compared with themselves: the same tools, and the same results, as without Ringback.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scripts.interop_runs.pins import Ecosystem

CLIENT: Final = "sdk-1"
"""The client in front of every server. The client of SDK 2.x cannot look again after Ringback was killed."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    tool: str
    arguments: Mapping[str, Any]
    wanted: str
    """A part of the result's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """In commands and arguments, `{folder}` is a folder of the run, and `{page}` the URL of a page."""

    name: str
    title: str
    ecosystem: Ecosystem = Ecosystem.PYPI
    environment: str | None = None
    """The environment of a client that this server uses too. Default: its own, by its name."""
    script: str | None = None
    """A server of servers/, over HTTP."""
    chained: bool = False
    """Another Ringback, in front of the matrix's own server."""
    command: Sequence[str] = ()
    """A server that others wrote, over stdio."""
    calls: Sequence[ToolCall] = ()
    slow: ToolCall | None = None
    """A tool beyond Ringback's window, if the server has one."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment_name(self) -> str:
        return self.environment or self.name


_REPOSITORY: Final = "{folder}/repository"
_ENTITY: Final = {"name": "Ringback", "entityType": "service", "observations": ["interop calls back"]}
_THOUGHT: Final = {"thought": "interop", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}

SERVERS: Final[Sequence[Server]] = (
    Server(name="server-fastmcp-2", title="FastMCP 2", environment="fastmcp-2", script="serve_fastmcp.py"),
    Server(name="server-fastmcp-4", title="FastMCP 4", environment="fastmcp-4", script="serve_fastmcp.py"),
    Server(name="server-sdk-1", title="SDK 1.x with an event store", environment="sdk-1", script="serve_sdk1.py"),
    Server(name="server-ringback", title="Ringback behind Ringback", environment="sdk-2", chained=True),
    Server(
        name="server-git",
        title="mcp-server-git",
        command=("mcp-server-git",),
        calls=(
            ToolCall("git_log", {"repo_path": _REPOSITORY}, "interop"),
            ToolCall("git_status", {"repo_path": _REPOSITORY}, "working tree clean"),
        ),
    ),
    Server(
        name="server-time",
        title="mcp-server-time",
        command=("mcp-server-time", "--local-timezone", "UTC"),
        calls=(
            ToolCall(
                "convert_time", {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "12:00"}, "21:00"
            ),
        ),
    ),
    Server(
        name="server-fetch",
        title="mcp-server-fetch",
        command=("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"),
        calls=(ToolCall("fetch", {"url": "{page}"}, "Contents of"),),
    ),
    Server(
        name="server-filesystem",
        title="server-filesystem",
        ecosystem=Ecosystem.NPM,
        command=("mcp-server-filesystem", "{folder}"),
        calls=(
            ToolCall("write_file", {"path": "{folder}/note.txt", "content": "interop"}, "wrote"),
            ToolCall("read_text_file", {"path": "{folder}/note.txt"}, "interop"),
        ),
    ),
    Server(
        name="server-memory",
        title="server-memory",
        ecosystem=Ecosystem.NPM,
        command=("mcp-server-memory",),
        variables={"MEMORY_FILE_PATH": "{folder}/memory.jsonl"},
        calls=(
            ToolCall(
                "create_entities", {"entities": [_ENTITY]}, "["
            ),  # when repeated it creates nothing and answers []
            ToolCall("read_graph", {}, "interop calls back"),
        ),
    ),
    Server(
        name="server-sequential-thinking",
        title="server-sequential-thinking",
        ecosystem=Ecosystem.NPM,
        command=("mcp-server-sequential-thinking",),
        calls=(ToolCall("sequentialthinking", _THOUGHT, "thoughtNumber"),),
    ),
    Server(
        name="server-everything",
        title="server-everything",
        ecosystem=Ecosystem.NPM,
        command=("mcp-server-everything",),
        calls=(
            ToolCall("echo", {"message": "interop"}, "interop"),
            ToolCall("get-sum", {"a": 20, "b": 22}, "42"),
            ToolCall("get-structured-content", {"location": "New York"}, "temperature"),
        ),
        slow=ToolCall("trigger-long-running-operation", {"duration": 7, "steps": 7}, "completed"),
    ),
)
