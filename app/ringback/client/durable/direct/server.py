"""How to reach an MCP server, and who answers its questions. Does not import the SDK."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringback.client.durable.handle import CallHandle
from ringback.client.models import InputRequest

if TYPE_CHECKING:
    import httpx2

AnswerInput = Callable[[CallHandle, InputRequest], Awaitable[Mapping[str, Any]]]
"""Asks a person, and returns an ElicitResult: `{"action": "accept", "content": {…}}`, or `{"action": "decline"}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How to reach an MCP server over HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: "httpx2.AsyncBaseTransport | None" = None
    answer_input: AnswerInput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCommand:
    """How to start an MCP server that is a command. Each connection starts a process of its own."""

    command: str
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | None = None
    keeps_tasks: bool = False
    answer_input: AnswerInput | None = None
