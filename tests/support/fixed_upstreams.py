"""Fake upstreams with fixed tools and configuration, and without tasks, for tests without calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, cast

from ringback.domain.call import ServerFingerprint
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope
from ringback.domain.upstreams import Reloaded, Restarted, ToolConfig, ToolInfo, UpstreamInfo
from ringback.upstreams.connection_status import ConnectionState

TOOLS: Final = {
    "git": (
        {
            "name": "git_log",
            "description": "Shows the commit logs",
            "inputSchema": {
                "type": "object",
                "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
                "required": ["repo_path"],
            },
        },
        {"name": "git_status", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    ),
    "time": ({"name": "get_time", "inputSchema": {"type": "object"}},),
}


class FakeUpstreamConnection:
    """A connection whose upstream has listed its tools, as the catalog needs it."""

    state = ConnectionState.READY
    trusted = False
    owner = SHARED_OWNER

    def __init__(self, name: str, credentials: CredentialsScope | None = None) -> None:
        """With `credentials`, a hosted server to which their owner signs in; it lists no tools."""
        self._name = name
        self._credentials = credentials
        self.last_error: str | None = None
        self.error_output: str | None = None

    def get_info(self) -> UpstreamInfo:
        return UpstreamInfo(
            name=self._name,
            transport="stdio" if self._credentials is None else "http",
            state=str(self.state),
            last_error=self.last_error,
            error_output=self.error_output,
            credentials=self._credentials,
            max_concurrent=16,
            trusts_annotations=self.trusted,
        )

    async def check_login(self) -> None:
        """It never changes."""

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """It is ready from the start."""

    def get_tool_config(self, tool: str) -> ToolConfig:
        del tool
        return ToolConfig()

    @property
    def lists(self) -> Self:
        """Its tools, of which it has one list."""
        return self

    def find_cached_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo]:
        del age_seconds_max
        return self.list_cached_tools()

    async def get_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo]:
        del age_seconds_max, can_elicit
        return self.list_cached_tools()

    async def get_fresh_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo]:
        return await self.get_tools(age_seconds_max=age_seconds_max, can_elicit=can_elicit)

    def get_cached_tool(self, name: str) -> ToolInfo | None:
        return self.list_cached_tools().get(name)

    def list_cached_tools(self) -> Mapping[str, ToolInfo]:
        return {
            raw["name"]: ToolInfo(
                name=raw["name"], description=raw.get("description"), input_schema=raw["inputSchema"], raw=raw
            )
            for raw in cast("tuple[dict[str, Any], ...]", TOOLS.get(self._name, ()))
        }


class FixedUpstreamConfiguration:
    """Upstreams whose configuration never changes."""

    def reload_configuration(self) -> Reloaded:
        """Implements `domain.upstreams.Configured`."""
        return Reloaded(added=[], changed=[], removed=[], unchanged=sorted(TOOLS))


class NoUpstreamConnections:
    """Upstreams without connections."""

    def restart_connections(self, upstream: str) -> Restarted:
        """Implements `domain.upstreams.UpstreamConnections`."""
        del upstream
        return Restarted(connections=0, calls=0)


class NoUpstreamTasks:
    """Upstreams that have no tasks."""

    def list_shared_names(self, upstream: str, server_fingerprint: ServerFingerprint | None) -> Sequence[str]:
        del server_fingerprint
        return [upstream]

    async def find_task(
        self, upstream: str, task_id: str, *, principal: Principal, visible_upstreams: frozenset[str] | None
    ) -> None:
        """Implements `services.calls.adoption.TaskLookup`."""
