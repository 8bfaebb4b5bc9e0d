"""Responses about upstreams and their tools."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field

from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import Reloaded, Restarted, SkippedUpstream, ToolInfo
from ringback.schemas.fields import Instant, ResponseBody
from ringback.schemas.upstream_logins import LoginStateView
from ringback.services.insights.insights import ListedUpstream


class UpstreamView(ResponseBody):
    """An MCP server whose tools the service calls."""

    name: str
    configured_name: str = Field(description="The name in the configuration, if it is another one; empty otherwise")
    transport: str = Field(description="stdio or http; unknown for a skipped one")
    state: str = Field(
        description="idle, connecting, ready, unresponsive (connected, and silent), failing, or skipped: its entry in the "
        "configuration cannot be served, and `last_error` and `advice` say why"
    )
    state_since: Instant | None = Field(
        description="When this node first saw the state; null for a skipped upstream, and for one without a connection"
    )
    protocol_version: str | None
    driver: str | None = Field(
        description="The driver of a call that starts now: task, mrtr, legacy_task, stream or plain; null while not connected"
    )
    last_error: str | None = Field(
        description="Why the connection fails, does not respond, or the entry is skipped, as a fixed word"
    )
    advice: str | None = Field(
        description="How to fix the last error. Without one: why the entry cannot be served since a reload, while the former "
        "one stays in use"
    )
    error_output: str | None = Field(
        description="For an operator: the exit code of a command that ended before it served a call, and the end of what it "
        "wrote to standard error, which may contain secrets; else null"
    )
    intake: UpstreamIntake = Field(
        description="open; paused: new calls are queued and queued ones stay queued; draining: new calls are refused"
    )
    login: LoginStateView
    calls_in_flight: int = Field(description="Calls that were sent to the upstream and have not ended")
    calls_waiting: int = Field(
        description="Calls whose turn has come and that are not sent yet: the upstream is away, it answered HTTP 429, or a "
        "token is being refreshed. They are not in `calls_in_flight`"
    )
    queued_calls: int = Field(
        description="Calls that wait in the queue of the upstream, in the database, up to 10,000: for an operator, those of "
        "all principals; else your own. Calls that start later are not in the queue yet"
    )
    max_concurrent: int = Field(description="How many calls a node runs at the upstream at once")
    connections: int = Field(
        description="Open connections. With credentials for each principal: for an operator, of all principals; else your own"
    )
    signed_in_owners: int | None = Field(
        description="For an operator: how many principals are signed in with credentials of their own, up to 10,000; else null"
    )
    isolation: str = Field(description="Which calls share a session with it: shared (all calls), principal or call")
    checks_arguments: bool = Field(
        description="Whether arguments that a tool's inputSchema refuses are refused before the call; `check_arguments` in the "
        "configuration"
    )
    faults: dict[str, int] = Field(
        description="Protocol faults of the upstream since the service started: unreadable, oversized, unmatched, repaired, "
        "dropped_notifications, slowed, list_cut, bad_event, stalled, replaced. Kinds with a count of 0 are left out."
    )

    @classmethod
    def from_listed(cls, listed: ListedUpstream) -> Self:
        names = cls.model_fields.keys() - {"intake", "login", "queued_calls", "signed_in_owners"}
        return cls(
            intake=listed.intake,
            login=LoginStateView.from_state(listed.login),
            queued_calls=listed.queued_calls,
            signed_in_owners=listed.signed_in_owners,
            **{name: getattr(listed.info, name) for name in names},
        )


class SkippedUpstreamView(ResponseBody):
    """An entry of the configuration that is not served."""

    name: str = Field(description="The name that the upstream would have")
    configured_name: str = Field(description="The name in the configuration")
    reason: str = Field(description="The `last_error` of the upstream in GET /v1/upstreams: a fixed word")
    advice: str = Field(description="What is wrong with the entry, and what to do")


class UpstreamIntakeView(ResponseBody):
    """Which calls an upstream takes now."""

    name: str
    intake: UpstreamIntake
    skipped: SkippedUpstreamView | None = Field(
        description="Why no call of it runs, whatever its intake: its entry in the configuration is skipped. Null for others"
    )

    @classmethod
    def from_intake(cls, name: str, intake: UpstreamIntake, *, skipped: SkippedUpstream | None) -> Self:
        return cls(name=name, intake=intake, skipped=skipped and SkippedUpstreamView.model_validate(skipped))


class UpstreamRestartView(ResponseBody):
    """What the restart of an upstream has ended on the node that answers."""

    name: str
    connections: int = Field(description="Connections that were open. Each is opened again at once, or by its next use")
    calls: int = Field(
        description="Calls that ran on them. Those that cannot be resumed end as `unknown`: their tools may have run"
    )

    @classmethod
    def from_restarted(cls, name: str, restarted: Restarted) -> Self:
        return cls(name=name, connections=restarted.connections, calls=restarted.calls)


class UpstreamsView(ResponseBody):
    upstreams: list[UpstreamView]

    @classmethod
    def from_listed(cls, listed: Sequence[ListedUpstream]) -> Self:
        return cls(upstreams=[UpstreamView.from_listed(each) for each in listed])


class ReloadedView(ResponseBody):
    """What the reload changed: names of upstreams, sorted."""

    added: list[str]
    changed: list[str] = Field(description="New calls use a new connection; running calls end on the old one.")
    removed: list[str] = Field(description="They have no entry any more. They accept no new calls; running calls end.")
    unchanged: list[str]
    skipped: list[SkippedUpstreamView] = Field(
        description="Entries that are not served, and why. An upstream that was served before is in `kept` instead."
    )
    kept: list[SkippedUpstreamView] = Field(
        description="Entries that cannot be served, of upstreams that were served before: their former entries stay in use "
        "until the entry is valid or removed, or the service is started again"
    )
    queued_calls: dict[str, int] = Field(
        description="How many calls, of all principals, are queued at upstreams that are removed or skipped, up to 10,000 of "
        "each; upstreams without any are left out. A call waits until its deadline, unless the entry comes back or the call is "
        "cancelled."
    )
    quotas_changed: bool = Field(description="Whether quotas of principals or keys in the file are others than before")

    @classmethod
    def from_reloaded(cls, reloaded: Reloaded) -> Self:
        return cls.model_validate(reloaded)


class ToolsView(ResponseBody):
    tools: list[dict[str, Any]] = Field(description="MCP Tool objects, unchanged.")

    @classmethod
    def from_infos(cls, infos: Sequence[ToolInfo]) -> Self:
        return cls(tools=[dict(info.raw) for info in infos])
