"""All use cases of one service."""

from dataclasses import dataclass

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
from ringback.services.events.event_polls import EventPolls
from ringback.services.events.event_publishing import EventPublishing
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.insights.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.body_admission import BodyAdmission
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.services.live.lists import LiveLists
from ringback.services.logins.upstream_logins import UpstreamLogins
from ringback.services.lookups import Lookups
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.upstreams.upstream_reloads import UpstreamReloads
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All use cases of one service, as its entry points use them. `bootstrap.services` builds them."""

    calls: Calls
    bulk_cancellations: BulkCancellations
    input_answers: InputAnswers
    task_adoption: TaskAdoption
    reports: CallReports
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    event_polls: EventPolls
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
    check_limiter: SchemaCheckLimiter
