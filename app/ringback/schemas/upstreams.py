"""Responses about upstreams and their tools."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field

from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import Reloaded, ToolInfo
from ringback.schemas.fields import ResponseBody
from ringback.services.insights import ListedUpstream


class UpstreamView(ResponseBody):
    """An MCP server whose tools the service calls."""

    name: str
    transport: str
    state: str = Field(description="idle, connecting, ready, unresponsive (connected, and silent) or failing")
    protocol_version: str | None
    driver: str | None = Field(
        description="The driver of a call that starts now: task, mrtr, legacy_task, stream or plain; null while not connected"
    )
    last_error: str | None = Field(description="Why the connection fails, as a fixed word")
    advice: str | None = Field(description="How to fix the last error")
    intake: UpstreamIntake = Field(
        description="open; paused: new calls are queued and queued ones stay queued; draining: new calls are refused"
    )
    calls_in_flight: int
    max_concurrent: int
    isolation: str = Field(description="Which calls share a session with it: shared (all calls), principal or call")
    faults: dict[str, int] = Field(
        description="Protocol faults of the upstream since the service started: unreadable, oversized, unmatched, repaired, "
        "dropped_notifications, list_cut, stalled, replaced. Kinds with a count of 0 are left out."
    )

    @classmethod
    def from_listed(cls, listed: ListedUpstream) -> Self:
        names = cls.model_fields.keys() - {"intake"}
        return cls(intake=listed.intake, **{name: getattr(listed.info, name) for name in names})


class UpstreamIntakeView(ResponseBody):
    """Which calls an upstream takes now."""

    name: str
    intake: UpstreamIntake


class UpstreamsView(ResponseBody):
    upstreams: list[UpstreamView]

    @classmethod
    def from_listed(cls, listed: Sequence[ListedUpstream]) -> Self:
        return cls(upstreams=[UpstreamView.from_listed(each) for each in listed])


class ReloadedView(ResponseBody):
    """What the reload changed: names of upstreams, sorted."""

    added: list[str]
    changed: list[str] = Field(description="New calls use a new connection; running calls end on the old one.")
    removed: list[str] = Field(description="They accept no new calls; running calls end.")
    unchanged: list[str]

    @classmethod
    def from_reloaded(cls, reloaded: Reloaded) -> Self:
        return cls.model_validate(reloaded)


class ToolsView(ResponseBody):
    tools: list[dict[str, Any]] = Field(description="MCP Tool objects, unchanged.")

    @classmethod
    def from_infos(cls, infos: Sequence[ToolInfo]) -> Self:
        return cls(tools=[dict(info.raw) for info in infos])
