"""Builds the use cases from their parts: those of a service, or those of a test or a simulation, which has fakes of some."""

from dataclasses import dataclass

from ringback.bootstrap.service_parts import ServiceParts, ServicesConfig
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.access.api_keys import ApiKeys
from ringback.services.access.operators import Operators
from ringback.services.access.portal_links import PortalLinks
from ringback.services.access.sign_ins import SignIns
from ringback.services.audit import AuditLog
from ringback.services.calls.adoption import TaskAdoption
from ringback.services.calls.call_histories import CallHistories
from ringback.services.calls.call_starts import CallStarter
from ringback.services.calls.calls import Calls
from ringback.services.calls.cancellation import BulkCancellations
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.calls.new_calls import NewCallWriter
from ringback.services.calls.reports import CallReports
from ringback.services.calls.resume import CallResumption
from ringback.services.deliveries.bulk_redelivery import BulkRedeliveries
from ringback.services.deliveries.deliveries import Deliveries
from ringback.services.deliveries.replays import DeliveryReplays
from ringback.services.erasures import Erasures
from ringback.services.events.event_polls import EventPolls
from ringback.services.events.event_publishing import EventPublishing
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.events.log_tails import LogTails
from ringback.services.insights.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.body_admission import BodyAdmission
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.services.live.lists import LiveLists
from ringback.services.logins.login_tokens import LoginRevocations
from ringback.services.logins.upstream_logins import LoginConfig, UpstreamLogins
from ringback.services.lookups import Lookups
from ringback.services.services import Services
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.upstreams.upstream_reloads import UpstreamReloads
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.callback_proofs import CallbackProofs
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.verification import WebhookVerification
from ringback.services.webhooks.webhooks import Webhooks
from ringback.ui.redirects import PORTAL_PATH
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedServices:
    """What several use cases build on."""

    lifecycle: Lifecycle
    payload_schemas: JsonPayloadSchemas
    check_limiter: SchemaCheckLimiter
    requested_deliveries: RequestedDeliveries
    attempts: AttemptScheduler
    verification: WebhookVerification
    upstream_controls: UpstreamControls
    event_types: EventTypes


def build_services(parts: ServiceParts, config: ServicesConfig) -> Services:
    """All use cases of one service. Raises `InvalidCallbackUrl` if `config` has an invalid allowlist."""
    shared = _build_shared(parts, config)
    store, clock, ids, recorder, quotas = parts.store, parts.clock, parts.ids, parts.recorder, parts.quotas
    lifecycle, attempts, requested = shared.lifecycle, shared.attempts, shared.requested_deliveries
    wait_seconds_max = config.wait_seconds_max
    registrations = _build_registrations(parts, shared)
    new_calls = NewCallWriter(ids=ids, tokens=parts.resume_tokens, registrations=registrations)
    return Services(
        body_admission=BodyAdmission(clock=clock),
        check_limiter=shared.check_limiter,
        calls=_build_calls(parts, config, shared, new_calls),
        bulk_cancellations=BulkCancellations(store=store, recorder=recorder, quotas=quotas),
        input_answers=InputAnswers(store, recorder, RequestedSchemas(), shared.check_limiter),
        task_adoption=TaskAdoption(
            store=store, tasks=parts.task_lookup, new_calls=new_calls, quotas=quotas, lifecycle=lifecycle
        ),
        reports=CallReports(store=store, recorder=recorder, new_calls=new_calls, quotas=quotas, lifecycle=lifecycle),
        registrations=registrations,
        webhooks=_build_webhooks(parts, shared),
        events=Events(store=store, clock=clock, lifecycle=lifecycle, wait_seconds_max=wait_seconds_max),
        event_polls=EventPolls(store=store, clock=clock, lifecycle=lifecycle, wait_seconds_max=wait_seconds_max),
        event_streams=EventStreams(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle, tails=LogTails(store)),
        event_types=shared.event_types,
        event_subscriptions=_build_event_subscriptions(parts, config, shared),
        event_publishing=EventPublishing(
            store=store,
            recorder=recorder,
            quotas=quotas,
            lifecycle=lifecycle,
            payload_schemas=shared.payload_schemas,
            check_limiter=shared.check_limiter,
        ),
        deliveries=Deliveries(store=store),
        replays=DeliveryReplays(
            store=store, requested_deliveries=requested, attempts=attempts, quotas=quotas, lifecycle=lifecycle
        ),
        bulk_redeliveries=BulkRedeliveries(
            store=store, requested_deliveries=requested, attempts=attempts, quotas=quotas, lifecycle=lifecycle
        ),
        call_resumes=parts.call_resumes,
        call_histories=CallHistories(store=store),
        lookups=Lookups(store=store, catalog=parts.tool_catalog),
        live_lists=LiveLists(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle),
        call_resumption=_build_call_resumption(parts, config, lifecycle),
        api_keys=ApiKeys(store=store, ids=ids),
        sign_ins=SignIns(store=store, ids=ids),
        portal_links=_build_portal_links(parts, config),
        audit_log=AuditLog(store=store),
        insights=_build_insights(parts, config, shared),
        upstream_controls=shared.upstream_controls,
        upstream_logins=_build_upstream_logins(parts, config, lifecycle),
        erasures=_build_erasures(parts, lifecycle),
        upstream_reloads=UpstreamReloads(
            store=store,
            configuration=parts.configuration,
            catalog=parts.tool_catalog,
            connections=parts.upstream_connections,
        ),
        operators=Operators(store=store, clock=clock),
        lifecycle=lifecycle,
    )


def _build_shared(parts: ServiceParts, config: ServicesConfig) -> _SharedServices:
    store, clock, targets = parts.store, parts.clock, parts.target_guard.policy
    lifecycle, payload_schemas, check_limiter = Lifecycle(), JsonPayloadSchemas(), SchemaCheckLimiter(clock=clock)
    return _SharedServices(
        lifecycle=lifecycle,
        payload_schemas=payload_schemas,
        check_limiter=check_limiter,
        requested_deliveries=RequestedDeliveries(ids=parts.ids),
        attempts=AttemptScheduler(store=store, clock=clock, targets=targets),
        verification=WebhookVerification(
            store=store, clock=clock, lifecycle=lifecycle, targets=targets, policy=config.verification
        ),
        upstream_controls=UpstreamControls(store=store, clock=clock, catalog=parts.tool_catalog),
        event_types=EventTypes(
            store=store,
            clock=clock,
            ids=parts.ids,
            lifecycle=lifecycle,
            catalog=parts.event_catalog,
            payload_schemas=payload_schemas,
            check_limiter=check_limiter,
        ),
    )


def _build_calls(
    parts: ServiceParts, config: ServicesConfig, shared: _SharedServices, new_calls: NewCallWriter
) -> Calls:
    starter = CallStarter(
        catalog=parts.tool_catalog,
        new_calls=new_calls,
        quotas=parts.quotas,
        attended_calls=parts.attended_calls,
        upstream_controls=shared.upstream_controls,
        check_limiter=shared.check_limiter,
        wait_seconds_max=config.wait_seconds_max,
    )
    return Calls(
        store=parts.store,
        clock=parts.clock,
        recorder=parts.recorder,
        attended_calls=parts.attended_calls,
        starter=starter,
        quotas=parts.quotas,
        lifecycle=shared.lifecycle,
        call_handoff=parts.call_handoff,
        admission=parts.admission,
        wait_seconds_max=config.wait_seconds_max,
    )


def _build_registrations(parts: ServiceParts, shared: _SharedServices) -> WebhookRegistrations:
    return WebhookRegistrations(
        store=parts.store,
        clock=parts.clock,
        ids=parts.ids,
        recorder=parts.recorder,
        catch_ups=parts.catch_ups,
        guard=parts.target_guard,
        quotas=parts.quotas,
        lifecycle=shared.lifecycle,
        verification=shared.verification,
        attempts=shared.attempts,
        catalog=parts.tool_catalog,
        event_types=shared.event_types,
    )


def _build_webhooks(parts: ServiceParts, shared: _SharedServices) -> Webhooks:
    return Webhooks(
        store=parts.store,
        ids=parts.ids,
        recorder=parts.recorder,
        requested_deliveries=shared.requested_deliveries,
        attempts=shared.attempts,
        guard=parts.target_guard,
        quotas=parts.quotas,
        lifecycle=shared.lifecycle,
        verification=shared.verification,
        catalog=parts.tool_catalog,
        event_types=shared.event_types,
    )


def _build_event_subscriptions(
    parts: ServiceParts, config: ServicesConfig, shared: _SharedServices
) -> EventSubscriptions:
    return EventSubscriptions(
        store=parts.store,
        clock=parts.clock,
        catch_ups=parts.catch_ups,
        verification=shared.verification,
        proofs=_build_callback_proofs(parts, config, shared.verification),
        attempts=shared.attempts,
        quotas=parts.quotas,
        lifecycle=shared.lifecycle,
        catalog=parts.tool_catalog,
        event_types=shared.event_types,
        ttl_policy=config.ttl_policy,
        message_ids=config.message_ids,
    )


def _build_callback_proofs(
    parts: ServiceParts, config: ServicesConfig, verification: WebhookVerification
) -> CallbackProofs:
    targets = parts.target_guard.policy
    sender = ChallengeSender(
        clock=parts.clock,
        ids=parts.ids,
        requester=parts.requester,
        policy=targets,
        signing_keys=config.signing_keys,
    )
    return CallbackProofs(store=parts.store, ids=parts.ids, sender=sender, verification=verification, targets=targets)


def _build_call_resumption(parts: ServiceParts, config: ServicesConfig, lifecycle: Lifecycle) -> CallResumption:
    return CallResumption(
        store=parts.store,
        clock=parts.clock,
        tokens=parts.resume_tokens,
        lifecycle=lifecycle,
        wait_seconds_max=config.wait_seconds_max,
    )


def _build_portal_links(parts: ServiceParts, config: ServicesConfig) -> PortalLinks:
    portal_url = f"{config.public_url}{PORTAL_PATH}"
    return PortalLinks(store=parts.store, ids=parts.ids, portal_url=portal_url, has_dashboard=config.has_dashboard)


def _build_insights(parts: ServiceParts, config: ServicesConfig, shared: _SharedServices) -> Insights:
    return Insights(
        store=parts.store,
        clock=parts.clock,
        catalog=parts.tool_catalog,
        upstream_controls=shared.upstream_controls,
        quotas=parts.quotas,
        lifecycle=shared.lifecycle,
        measurements=parts.measurements,
        public_url=config.public_url,
    )


def _build_upstream_logins(parts: ServiceParts, config: ServicesConfig, lifecycle: Lifecycle) -> UpstreamLogins:
    return UpstreamLogins(
        store=parts.store,
        clock=parts.clock,
        ids=parts.ids,
        catalog=parts.tool_catalog,
        flow=parts.login_flow,
        waits=parts.login_waits,
        lifecycle=lifecycle,
        config=LoginConfig(public_url=config.public_url, redirect_urls=frozenset(config.login_redirect_urls)),
    )


def _build_erasures(parts: ServiceParts, lifecycle: Lifecycle) -> Erasures:
    return Erasures(
        store=parts.store,
        ids=parts.ids,
        recorder=parts.recorder,
        lifecycle=lifecycle,
        revocations=LoginRevocations(parts.login_flow),
    )
