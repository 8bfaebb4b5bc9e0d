"""Responses about upstreams and their tools, as frozen values."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ringback.client.models import ClientModel


class Upstream(ClientModel):
    """An MCP server behind the service, and its state."""

    name: str
    transport: str
    state: str
    """idle | connecting | ready | unresponsive | failing"""
    protocol_version: str | None = None
    driver: str | None = None
    """How a new call is executed: task | mrtr | legacy_task | stream | plain; None while disconnected."""
    last_error: str | None = None
    advice: str | None = None
    """How to repair the last error."""
    intake: str = "open"
    """open | paused (calls stay queued) | draining (new calls are refused)"""
    calls_in_flight: int = 0
    max_concurrent: int = 0
    isolation: str = "shared"
    """Which calls share a session: shared (all) | principal | call"""
    faults: Mapping[str, int] = Field(default_factory=dict[str, int])
    """How many invalid messages it has sent since the service started, by kind."""


class UpstreamIntake(ClientModel):
    """Which calls an upstream takes now."""

    name: str
    intake: str


class Reloaded(ClientModel):
    """The names of upstreams that a reload of the configuration changed, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]


class Tool(ClientModel):
    """A tool as its upstream lists it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = Field(default_factory=dict[str, Any], alias="inputSchema", repr=False)
    output_schema: Mapping[str, Any] | None = Field(default=None, alias="outputSchema", repr=False)


class UpstreamList(ClientModel):
    upstreams: tuple[Upstream, ...]


class ToolList(ClientModel):
    tools: tuple[Tool, ...]
