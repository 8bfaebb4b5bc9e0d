"""Upstreams and their tools, and how the service itself is doing."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field

from ringback.domain.upstreams import Reloaded, ToolInfo, UpstreamInfo
from ringback.schemas.fields import ResponseBody


class UpstreamView(ResponseBody):
    """An MCP server behind the service."""

    name: str
    transport: str
    state: str = Field(description="idle, connecting, ready, unresponsive (connected, and silent) or failing")
    protocol_version: str | None
    driver: str | None = Field(
        description="How a call that begins now is carried: task, mrtr, legacy_task, stream or plain; null while not connected"
    )
    last_error: str | None = Field(description="Why it cannot be reached, in a fixed word")
    advice: str | None = Field(description="What to do about the last error")
    calls_in_flight: int
    max_concurrent: int
    isolation: str = Field(description="Who shares a session with it: shared (all calls), principal or call")
    faults: dict[str, int] = Field(
        description="What it sent that it should not, since the service started: unreadable, oversized, unmatched, repaired, "
        "dropped_notifications, list_cut, stalled, replaced. Kinds that did not happen are left out."
    )

    @classmethod
    def from_info(cls, info: UpstreamInfo) -> Self:
        return cls(
            name=info.name,
            transport=info.transport,
            state=info.state,
            protocol_version=info.protocol_version,
            driver=info.driver,
            last_error=info.last_error,
            advice=info.advice,
            calls_in_flight=info.calls_in_flight,
            max_concurrent=info.max_concurrent,
            isolation=info.isolation,
            faults=dict(info.faults),
        )


class UpstreamsView(ResponseBody):
    upstreams: list[UpstreamView]

    @classmethod
    def from_infos(cls, infos: Sequence[UpstreamInfo]) -> Self:
        return cls(upstreams=[UpstreamView.from_info(info) for info in infos])


class ReloadedView(ResponseBody):
    """What reading the configuration again has changed; names of upstreams, sorted."""

    added: list[str]
    changed: list[str] = Field(description="New calls go over a new connection; those that run end on the old one.")
    removed: list[str] = Field(description="They take no new calls; those that run end.")
    unchanged: list[str]

    @classmethod
    def from_reloaded(cls, reloaded: Reloaded) -> Self:
        return cls(
            added=list(reloaded.added),
            changed=list(reloaded.changed),
            removed=list(reloaded.removed),
            unchanged=list(reloaded.unchanged),
        )


class ToolsView(ResponseBody):
    tools: list[dict[str, Any]] = Field(description="MCP Tool objects, as the upstream lists them.")

    @classmethod
    def from_infos(cls, infos: Sequence[ToolInfo]) -> Self:
        return cls(tools=[dict(info.raw) for info in infos])


class HealthView(ResponseBody):
    status: Literal["ok"] = "ok"


class ReadinessView(ResponseBody):
    status: Literal["ready"] = "ready"
    degraded: list[str] = Field(
        description="MCP endpoints that failed and are being restarted, by path. All others, and REST, are served."
    )


class ProblemTypeView(ResponseBody):
    """What a problem type means."""

    type: str
    title: str
    status: int
