"""The services and the settings that every request uses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from ringback.domain.client_address import Network
from ringback.domain.principal import Authenticator
from ringback.domain.protected_resource import ProtectedResource
from ringback.domain.roles import ALL_ROLES, Role
from ringback.services.limits.unread_responses import UnreadResponses
from ringback.services.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    authenticator: Authenticator
    oauth: ProtectedResource | None = None
    """How OAuth clients find the issuer of their tokens; None if the service accepts only API keys."""
    public_url: str
    allowed_hosts: Collection[str] = ()
    """Accepted host names besides that of the public URL."""
    allowed_origins: Collection[str] = ()
    """Origins of pages that may call from a browser; without any, CORS is off."""
    trusted_proxies: Collection[Network] = ()
    """Proxies whose `X-Forwarded-For` names the client."""
    client_requests_max: int = 256
    """Open requests of one client behind the trusted proxies."""
    request_bytes_max: int
    unread_responses: UnreadResponses = field(default_factory=UnreadResponses)
    """Limits the memory of responses that their clients have not read."""
    public_keys: Sequence[Mapping[str, str]] = ()
    """JSON Web Keys of the keys that sign callbacks."""
    failing_workers: Callable[[], frozenset[str]] = frozenset
    """Names of the failed background workers. The service is not ready while one has failed."""
    workers_by_role: Mapping[Role, Collection[str]] = field(default_factory=lambda: dict.fromkeys(ALL_ROLES, ()))
    """This node's roles, with the names of their workers."""
    failing_endpoints: Callable[[], frozenset[str]] = frozenset
    """Paths of the failed MCP endpoints. Readiness lists them and stays 200, because everything else works."""
    has_confirmed_clock: Callable[[], bool] = lambda: True
    """False in the first minutes after a start with a clock that is far ahead (`domain.clock_confirmation`)."""

    def roles_ready(self) -> dict[str, bool]:
        """For each role of this node, whether all its workers run."""
        failing = self.failing_workers()
        return {str(role): failing.isdisjoint(workers) for role, workers in self.workers_by_role.items()}


async def get_services(request: Request) -> Services:  # async, because FastAPI runs other dependencies in threads
    services: Services = request.app.state.services
    return services


def get_config(request: Request) -> ApiConfig:
    config: ApiConfig = request.app.state.config
    return config


ServicesDep = Annotated[Services, Depends(get_services)]
"""The parameter of an operation that holds the services."""
