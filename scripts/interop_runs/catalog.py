"""The clients of the matrix: how each is installed and driven, and how its user names a session and asks for a callback.

header   an HTTP header of the connection          query   the URL's query
_meta    `_meta` of each call                      option  an option of `ringback mcp`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scripts.interop_runs.pins import Ecosystem


class Way(StrEnum):
    """How a client names its session and asks for a callback. In the order of preference."""

    META = "_meta"
    HEADER = "header"
    QUERY = "query"
    OPTION = "option"


class Transport(StrEnum):
    HTTP = "http"
    BRIDGE = "bridge"
    """`ringback mcp`: the client starts it."""
    COMMAND = "command"
    """A command of the client's own environment that connects to the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    title: str
    ecosystem: Ecosystem
    driver: str
    ways: Mapping[Way, str]
    """What the user writes, in the client's own words."""
    shows_progress: bool = True
    gives_up: bool = True
    """Whether a call in progress can be given up."""
    transport: Transport = Transport.HTTP
    command: Sequence[str] = ()
    """For `Transport.COMMAND`: the command, in which `{url}` is the endpoint."""
    environment: str | None = None
    """The environment of another client that this one uses too. Default: its own, by its name."""
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment_name(self) -> str:
        return self.environment or self.name


_URL_QUERY: Final = "in the URL"


def _python(
    name: str, title: str, driver: str, *, header: str | None, meta: str | None = None, **named: bool
) -> Client:
    ways = {Way.META: meta, Way.HEADER: header, Way.QUERY: _URL_QUERY}
    return Client(
        name=name,
        title=title,
        ecosystem=Ecosystem.PYPI,
        driver=f"drive_{driver}.py",
        ways={way: how for way, how in ways.items() if how is not None},
        **named,
    )


_SDK1_HEADERS: Final = "streamablehttp_client(headers=)"

CLIENTS: Final[Sequence[Client]] = (
    _python("sdk-1.9", "MCP SDK for Python 1.9", "sdk1", header=_SDK1_HEADERS),
    _python("fastmcp-2", "FastMCP 2", "fastmcp", header="StreamableHttpTransport(headers=)", meta="call_tool(meta=)"),
    _python("langchain", "langchain-mcp-adapters", "langchain", header="connection['headers']", shows_progress=False),
)


def find_clients(names: Sequence[str]) -> list[Client]:
    """The named clients, or all; raises `KeyError` with an unknown name."""
    by_name = {client.name: client for client in CLIENTS}
    return [by_name[name] for name in names] if names else list(CLIENTS)
