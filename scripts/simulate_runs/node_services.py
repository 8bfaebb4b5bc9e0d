"""What the services of a simulated node have in place of settings, name servers, upstreams and authorization servers."""

from collections.abc import Sequence
from typing import Any, Final, cast

from ringback.bootstrap.service_parts import ServicesConfig
from ringback.domain.call import RerunPolicy
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import LoginFlow
from ringback.domain.upstreams import (
    SkippedUpstream,
    ToolConfig,
    ToolInfo,
    UpstreamConfiguration,
    UpstreamConnections,
    UpstreamInfo,
)
from ringback.notifier.http.resolver import NameNotFound, Resolution
from ringback.notifier.http.target import TargetPolicy
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.calls.adoption import TaskLookup

PUBLIC_URL: Final = "https://ringback.example"
POLICY: Final = TargetPolicy()
SUBSCRIPTION_SECONDS: Final = 20.0
"""How long a grant of events/subscribe lasts. A service grants at least five minutes."""


class NamesOfNothing:
    """Implements `notifier.http.resolver.Resolver`: there are no names, because every receiver has an address."""

    async def __call__(self, host: str, /) -> Resolution:
        raise NameNotFound(host)

    async def aclose(self) -> None:
        """Nothing is open."""


class OpenCatalog:
    """Implements `domain.upstreams.ToolCatalog`: every tool of every upstream exists."""

    def list_upstreams(self, principal: Principal | None = None) -> Sequence[UpstreamInfo]:  # noqa: ARG002 - as below
        return []

    def has_upstream(self, upstream: str) -> bool:  # noqa: ARG002 - the names of ToolCatalog
        return True

    def list_skipped(self) -> Sequence[SkippedUpstream]:
        return []

    async def list_tools(self, upstream: str, *, principal: Principal) -> Sequence[ToolInfo]:  # noqa: ARG002 - as above
        return []

    async def check_call(self, *args: Any, **kwargs: Any) -> None:
        """Every call is possible."""

    def is_repeatable(self, upstream: str, tool: str, *, principal: Principal) -> bool:  # noqa: ARG002 - as above
        return False

    def find_tool(self, *args: Any, **kwargs: Any) -> ToolInfo | None:  # noqa: ARG002 - as above
        return None

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:  # noqa: ARG002 - as above
        return ToolConfig(rerun_policy=RerunPolicy.NEVER)


class _NoLogins:
    """The authorization servers of a simulation revoke tokens without a request. No user signs in on their pages."""

    async def revoke_tokens(self, tokens: Any) -> None:
        """Nothing is sent."""


SERVICES_CONFIG: Final = ServicesConfig(
    public_url=PUBLIC_URL,
    ttl_policy=TtlPolicy(default_seconds=SUBSCRIPTION_SECONDS, shortest_seconds=SUBSCRIPTION_SECONDS),
)
NO_LOGINS: Final = cast("LoginFlow", _NoLogins())
NO_TASKS: Final = cast("TaskLookup", None)
"""No plan adopts a task."""
NO_CONFIGURATION: Final = cast("UpstreamConfiguration", None)
NO_CONNECTIONS: Final = cast("UpstreamConnections", None)
"""No plan reads the configuration again."""
