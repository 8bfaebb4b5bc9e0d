"""Upstreams and their tools, and how the service itself is doing."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field

from ringback.api.schemas.fields import View
from ringback.domain.upstreams import ToolInfo, UpstreamInfo


class UpstreamView(View):
    """An MCP server behind the service."""

    name: str
    transport: str
    state: str = Field(description="idle, connecting, ready or failing")
    protocol_version: str | None
    last_error: str | None
    calls_in_flight: int
    max_concurrent: int

    @classmethod
    def of(cls, info: UpstreamInfo) -> Self:
        return cls(
            name=info.name,
            transport=info.transport,
            state=info.state,
            protocol_version=info.protocol_version,
            last_error=info.last_error,
            calls_in_flight=info.calls_in_flight,
            max_concurrent=info.max_concurrent,
        )


class UpstreamsView(View):
    upstreams: list[UpstreamView]

    @classmethod
    def of(cls, infos: Sequence[UpstreamInfo]) -> Self:
        return cls(upstreams=[UpstreamView.of(info) for info in infos])


class ToolsView(View):
    tools: list[dict[str, Any]] = Field(description="MCP Tool objects, as the upstream lists them.")

    @classmethod
    def of(cls, infos: Sequence[ToolInfo]) -> Self:
        return cls(tools=[dict(info.raw) for info in infos])


class HealthView(View):
    status: Literal["ok"] = "ok"


class ReadinessView(View):
    status: Literal["ready"] = "ready"


class ProblemTypeView(View):
    """What a problem type means."""

    type: str
    title: str
    status: int
