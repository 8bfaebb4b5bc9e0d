"""The services and the settings that every request uses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from ringback.domain.client_address import Network
from ringback.domain.principal import Authenticator
from ringback.domain.protected_resource import ProtectedResource
from ringback.domain.roles import ALL_ROLES, Role
from ringback.services.access.api_keys import ApiKeys
from ringback.services.access.operators import Operators
from ringback.services.access.portal_links import PortalLinks
from ringback.services.access.sign_ins import SignIns
from ringback.services.audit import AuditLog
from ringback.services.calls.adoption import TaskAdoption
from ringback.services.calls.call_histories import CallHistories
from ringback.services.calls.calls import Calls
from ringback.services.calls.cancellation import BulkCancellations
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.calls.reports import CallReports
from ringback.services.calls.resume import CallResumption
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.deliveries.bulk_redelivery import BulkRedeliveries
from ringback.services.deliveries.deliveries import Deliveries
from ringback.services.deliveries.replays import DeliveryReplays
from ringback.services.erasures import Erasures
from ringback.services.events.event_publishing import EventPublishing
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.body_admission import BodyAdmission
from ringback.services.limits.unread_responses import UnreadResponses
from ringback.services.live import LiveLists
from ringback.services.logins.upstream_logins import UpstreamLogins
from ringback.services.lookups import Lookups
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.upstreams.upstream_reloads import UpstreamReloads
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    calls: Calls
    bulk_cancellations: BulkCancellations
    input_answers: InputAnswers
    task_adoption: TaskAdoption
    reports: CallReports
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    event_types: EventTypes
    event_subscriptions: EventSubscriptions
    event_publishing: EventPublishing
    event_streams: EventStreams
    deliveries: Deliveries
    replays: DeliveryReplays
    bulk_redeliveries: BulkRedeliveries
    call_resumes: CallResumeRecorder
    call_histories: CallHistories
    live_lists: LiveLists
    lookups: Lookups
    call_resumption: CallResumption
    api_keys: ApiKeys
    sign_ins: SignIns
    portal_links: PortalLinks
    audit_log: AuditLog
    insights: Insights
    upstream_controls: UpstreamControls
    upstream_logins: UpstreamLogins
    upstream_reloads: UpstreamReloads
    operators: Operators
    erasures: Erasures
    lifecycle: Lifecycle
    body_admission: BodyAdmission


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
