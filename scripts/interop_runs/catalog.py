"""The clients of the matrix: how each is installed and driven, and how its user names a session and asks for a callback.

header   an HTTP header of the connection          query   the URL's query
_meta    `_meta` of each call                      option  an option of `ringback mcp`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

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

    @property
    def environment_name(self) -> str:
        return self.environment or self.name


_URL_QUERY: Final = "the URL"
_TRANSPORT_HEADERS: Final = "streamablehttp_client(headers=)"
_REQUEST_HEADERS: Final = "requestInit.headers"


def _python(name: str, title: str, driver: str, *, header: str, meta: str | None = None, **named: Any) -> Client:
    return _client(name, title, Ecosystem.PYPI, f"drive_{driver}.py", header, meta, **named)


def _node(name: str, title: str, driver: str, *, header: str, meta: str | None = None, **named: Any) -> Client:
    return _client(name, title, Ecosystem.NPM, f"drive_{driver}.mjs", header, meta, **named)


def _client(
    name: str, title: str, ecosystem: Ecosystem, driver: str, header: str, meta: str | None, **named: Any
) -> Client:
    ways = {Way.META: meta, Way.HEADER: header, Way.QUERY: _URL_QUERY}
    settable = {way: how for way, how in ways.items() if how is not None}
    return Client(name=name, title=title, ecosystem=ecosystem, driver=driver, ways=settable, **named)


_BLOCKING: Final[Mapping[str, Any]] = {"shows_progress": False, "gives_up": False}
"""Of frameworks whose tools block a thread."""
_NO_PROGRESS: Final[Mapping[str, Any]] = {"shows_progress": False}

CLIENTS: Final[Sequence[Client]] = (
    _python("sdk-1.9", "MCP SDK for Python 1.9", "sdk1", header=_TRANSPORT_HEADERS),
    _python("sdk-1.12", "MCP SDK for Python 1.12", "sdk1", header=_TRANSPORT_HEADERS),
    _python("sdk-1", "MCP SDK for Python 1.x", "sdk1", header=_TRANSPORT_HEADERS, meta="call_tool(meta=)"),
    _python("sdk-2", "MCP SDK for Python 2.x", "sdk2", header="http_client=", meta="call_tool(meta=)"),
    Client(
        name="ringback-mcp",
        title="`ringback mcp` below MCP SDK 1.x",
        ecosystem=Ecosystem.PYPI,
        driver="drive_sdk1.py",
        ways={Way.OPTION: "--client-session-id, --callback-url", Way.META: "call_tool(meta=)"},
        transport=Transport.BRIDGE,
        environment="sdk-1",
    ),
    _python("fastmcp-2", "FastMCP 2", "fastmcp", header="StreamableHttpTransport(headers=)", meta="call_tool(meta=)"),
    _python("fastmcp-4", "FastMCP 4", "fastmcp", header="StreamableHttpTransport(headers=)", meta="call_tool(meta=)"),
    _python("langchain", "langchain-mcp-adapters", "langchain", header="connection['headers']", **_NO_PROGRESS),
    _python("pydantic-ai", "Pydantic AI", "pydantic_ai", header="MCPToolset(headers=)", **_NO_PROGRESS),
    _python("openai-agents", "OpenAI Agents SDK", "openai_agents", header="params['headers']", **_NO_PROGRESS),
    _python("google-adk", "Google ADK", "google_adk", header="connection params' headers", **_NO_PROGRESS),
    _python("llama-index", "LlamaIndex", "llama_index", header="BasicMCPClient(headers=)", **_NO_PROGRESS),
    _python("crewai", "CrewAI", "crewai", header="server_params['headers']", **_BLOCKING),
    _python("smolagents", "smolagents", "smolagents", header="server_parameters['headers']", **_BLOCKING),
    _python("strands", "Strands Agents", "strands", header="http_client=", **_NO_PROGRESS),
    _python("autogen", "AutoGen", "autogen", header="StreamableHttpServerParams(headers=)", **_NO_PROGRESS),
    _python("semantic-kernel", "Semantic Kernel", "semantic_kernel", header="plugin's headers=", **_NO_PROGRESS),
    _python(
        "agent-framework", "Microsoft Agent Framework", "agent_framework", header="static_headers=", **_NO_PROGRESS
    ),
    _python("mcp-use", "mcp-use", "mcp_use", header="server config's headers", **_NO_PROGRESS),
    _node("js-sdk-1", "MCP SDK for TypeScript 1.x", "sdk1", header=_REQUEST_HEADERS, meta="callTool({_meta})"),
    _node("js-sdk-2", "MCP SDK for TypeScript 2.x", "sdk2", header=_REQUEST_HEADERS, meta="callTool({_meta})"),
    _node("inspector", "MCP Inspector, command line", "inspector", header="--header", **_NO_PROGRESS),
    _node(
        "mcp-remote",
        "mcp-remote",
        "sdk1",
        header="--header",
        meta="its client's",
        transport=Transport.COMMAND,
        command=("mcp-remote", "{url}", "--allow-http"),
    ),
    _node(
        "supergateway",
        "supergateway",
        "sdk1",
        header="--header",
        meta="its client's",
        transport=Transport.COMMAND,
        command=("supergateway", "--streamableHttp", "{url}", "--logLevel", "none"),
        **_NO_PROGRESS,  # it repeats requests to the server without a progress callback
    ),
    _node("ai-sdk-5", "AI SDK 5", "ai_sdk", header="transport.headers", **_NO_PROGRESS),
    _node("ai-sdk-7", "AI SDK 7", "ai_sdk", header="transport.headers", **_NO_PROGRESS),
    _node("langchain-js", "LangChain.js", "langchain", header="mcpServers' headers", **_NO_PROGRESS),
    _node("mastra", "Mastra", "mastra", header=_REQUEST_HEADERS, **_NO_PROGRESS),
)
