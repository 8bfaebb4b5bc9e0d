"""What every request needs: the services behind the API, and the few settings of the API itself."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ringback.domain.principal import Authenticator
from ringback.domain.protected_resource import ProtectedResource
from ringback.services.administration import Administration
from ringback.services.adoption import TaskAdoption
from ringback.services.api_keys import ApiKeys
from ringback.services.calls import Calls
from ringback.services.deliveries import Deliveries
from ringback.services.events import Events
from ringback.services.input_answers import InputAnswers
from ringback.services.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.registrations import WebhookRegistrations
from ringback.services.replays import DeliveryReplays
from ringback.services.reports import CallReports
from ringback.services.resume import CallResumption
from ringback.services.webhooks import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    calls: Calls
    input_answers: InputAnswers
    task_adoption: TaskAdoption
    reports: CallReports
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    deliveries: Deliveries
    replays: DeliveryReplays
    call_resumption: CallResumption
    api_keys: ApiKeys
    insights: Insights
    administration: Administration
    lifecycle: Lifecycle


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    authenticator: Authenticator
    oauth: ProtectedResource | None = None
    """How OAuth clients find the issuer of their tokens; None when only API keys are known."""
    public_url: str
    allowed_hosts: Collection[str] = ()
    """Host names that are answered to beside the public URL's."""
    allowed_origins: Collection[str] = ()
    """Origins of pages that may call from a browser; with none, CORS is off."""
    request_bytes_max: int
    public_keys: Sequence[Mapping[str, str]] = ()
    """JSON Web Keys of what signs callbacks for everybody."""
    failing_workers: Callable[[], frozenset[str]] = frozenset
    """Names of the background workers that are down. The service is not ready while there is one."""
    failing_endpoints: Callable[[], frozenset[str]] = frozenset
    """Paths of the MCP endpoints that are down. Readiness lists them and stays green: everything else is served."""


async def get_services(request: Request) -> Services:  # async, or FastAPI would run it in a thread for each request
    services: Services = request.app.state.services
    return services


def get_config(request: Request) -> ApiConfig:
    config: ApiConfig = request.app.state.config
    return config


ServicesDep = Annotated[Services, Depends(get_services)]
"""A parameter of an operation: the services behind the API."""
