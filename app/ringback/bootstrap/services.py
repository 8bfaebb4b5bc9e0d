"""Builds the use cases."""

from ringback.api.app import Services
from ringback.bootstrap.components import Components
from ringback.bootstrap.configuration import build_target_policy
from ringback.bootstrap.policies import build_ttl_policy
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.webhook import MessageIds
from ringback.keyring import load_signing_keys
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.runner.task_lookup import UpstreamTaskLookup
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
from ringback.services.events.event_publishing import EventPublishing
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.events.log_tails import LogTails
from ringback.services.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.body_admission import BodyAdmission
from ringback.services.live import LiveLists
from ringback.services.logins.login_tokens import LoginRevocations
from ringback.services.logins.upstream_logins import LoginConfig, UpstreamLogins
from ringback.services.lookups import Lookups
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.upstreams.upstream_reloads import UpstreamReloads
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.callback_proofs import CallbackProofs
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.verification import VerificationPolicy, WebhookVerification
from ringback.services.webhooks.webhooks import Webhooks
from ringback.settings import Settings, SettingsError
from ringback.ui.redirects import PORTAL_PATH
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas


def _build_verification(components: Components, settings: Settings, lifecycle: Lifecycle) -> WebhookVerification:
    try:
        return WebhookVerification(
            store=components.store,
            clock=components.environment.clock,
            lifecycle=lifecycle,
            targets=build_target_policy(settings),
            policy=VerificationPolicy(mode=settings.verify_callbacks, allowlist=settings.callback_allowlist),
        )
    except InvalidCallbackUrl as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_ALLOWLIST: {problem}") from None


def _build_registrations(
    components: Components,
    lifecycle: Lifecycle,
    verification: WebhookVerification,
    attempts: AttemptScheduler,
    event_types: EventTypes,
) -> WebhookRegistrations:
    return WebhookRegistrations(
        store=components.store,
        clock=components.environment.clock,
        ids=components.ids,
        recorder=components.recorder,
        catch_ups=components.catch_ups,
        guard=components.target_guard,
        quotas=components.quotas,
        lifecycle=lifecycle,
        verification=verification,
        attempts=attempts,
        catalog=components.upstreams.tool_catalog,
        event_types=event_types,
    )


def _build_webhooks(
    components: Components,
    lifecycle: Lifecycle,
    verification: WebhookVerification,
    attempts: AttemptScheduler,
    event_types: EventTypes,
) -> Webhooks:
    return Webhooks(
        store=components.store,
        ids=components.ids,
        recorder=components.recorder,
        requested_deliveries=RequestedDeliveries(ids=components.ids),
        attempts=attempts,
        guard=components.target_guard,
        quotas=components.quotas,
        lifecycle=lifecycle,
        verification=verification,
        catalog=components.upstreams.tool_catalog,
        event_types=event_types,
    )


def _build_event_subscriptions(
    components: Components,
    settings: Settings,
    lifecycle: Lifecycle,
    verification: WebhookVerification,
    attempts: AttemptScheduler,
    event_types: EventTypes,
) -> EventSubscriptions:
    targets = build_target_policy(settings)
    sender = ChallengeSender(
        clock=components.environment.clock,
        ids=components.ids,
        requester=components.sender,
        policy=targets,
        signing_keys=load_signing_keys(settings),
    )
    return EventSubscriptions(
        store=components.store,
        clock=components.environment.clock,
        catch_ups=components.catch_ups,
        verification=verification,
        proofs=CallbackProofs(
            store=components.store, ids=components.ids, sender=sender, verification=verification, targets=targets
        ),
        attempts=attempts,
        quotas=components.quotas,
        lifecycle=lifecycle,
        catalog=components.upstreams.tool_catalog,
        event_types=event_types,
        ttl_policy=build_ttl_policy(settings),
        message_ids=MessageIds(settings.subscription_message_ids),
    )


def _build_calls(
    components: Components,
    settings: Settings,
    lifecycle: Lifecycle,
    new_calls: NewCallWriter,
    upstream_controls: UpstreamControls,
) -> Calls:
    starter = CallStarter(
        catalog=components.upstreams.tool_catalog,
        new_calls=new_calls,
        quotas=components.quotas,
        attended_calls=components.attended_calls,
        upstream_controls=upstream_controls,
        wait_seconds_max=settings.wait_seconds_max,
    )
    return Calls(
        store=components.store,
        clock=components.environment.clock,
        recorder=components.recorder,
        attended_calls=components.attended_calls,
        starter=starter,
        quotas=components.quotas,
        lifecycle=lifecycle,
        call_handoff=components.call_handoff,
        admission=components.admission,
        wait_seconds_max=settings.wait_seconds_max,
    )


def _build_replays(components: Components, lifecycle: Lifecycle, attempts: AttemptScheduler) -> DeliveryReplays:
    return DeliveryReplays(
        store=components.store,
        requested_deliveries=RequestedDeliveries(ids=components.ids),
        attempts=attempts,
        quotas=components.quotas,
        lifecycle=lifecycle,
    )


def _build_bulk_redeliveries(
    components: Components, lifecycle: Lifecycle, attempts: AttemptScheduler
) -> BulkRedeliveries:
    return BulkRedeliveries(
        store=components.store,
        requested_deliveries=RequestedDeliveries(ids=components.ids),
        attempts=attempts,
        quotas=components.quotas,
        lifecycle=lifecycle,
    )


def _build_upstream_logins(components: Components, settings: Settings, lifecycle: Lifecycle) -> UpstreamLogins:
    return UpstreamLogins(
        store=components.store,
        clock=components.environment.clock,
        ids=components.ids,
        catalog=components.upstreams.tool_catalog,
        flow=components.login_flow,
        waits=components.login_waits,
        lifecycle=lifecycle,
        config=LoginConfig(public_url=settings.base_url, redirect_urls=frozenset(settings.login_redirect_urls)),
    )


def _build_erasures(components: Components, lifecycle: Lifecycle) -> Erasures:
    return Erasures(
        store=components.store,
        ids=components.ids,
        recorder=components.recorder,
        lifecycle=lifecycle,
        revocations=LoginRevocations(components.login_flow),
    )


def _build_insights(
    components: Components, settings: Settings, lifecycle: Lifecycle, upstream_controls: UpstreamControls
) -> Insights:
    return Insights(
        store=components.store,
        clock=components.environment.clock,
        catalog=components.upstreams.tool_catalog,
        upstream_controls=upstream_controls,
        quotas=components.quotas,
        lifecycle=lifecycle,
        measurements=components.measurements,
        public_url=settings.base_url,
    )


def _build_task_adoption(components: Components, lifecycle: Lifecycle, new_calls: NewCallWriter) -> TaskAdoption:
    return TaskAdoption(
        store=components.store,
        tasks=UpstreamTaskLookup(components.upstreams.connections),
        new_calls=new_calls,
        quotas=components.quotas,
        lifecycle=lifecycle,
    )


def _build_reports(components: Components, lifecycle: Lifecycle, new_calls: NewCallWriter) -> CallReports:
    return CallReports(
        store=components.store,
        recorder=components.recorder,
        new_calls=new_calls,
        quotas=components.quotas,
        lifecycle=lifecycle,
    )


def _build_event_types(components: Components, lifecycle: Lifecycle, payload_schemas: JsonPayloadSchemas) -> EventTypes:
    return EventTypes(
        store=components.store,
        clock=components.environment.clock,
        lifecycle=lifecycle,
        catalog=components.upstreams.event_catalog,
        payload_schemas=payload_schemas,
    )


def _build_event_publishing(
    components: Components, lifecycle: Lifecycle, payload_schemas: JsonPayloadSchemas
) -> EventPublishing:
    return EventPublishing(
        store=components.store,
        recorder=components.recorder,
        quotas=components.quotas,
        lifecycle=lifecycle,
        payload_schemas=payload_schemas,
    )


def _build_call_resumption(components: Components, settings: Settings, lifecycle: Lifecycle) -> CallResumption:
    return CallResumption(
        store=components.store,
        clock=components.environment.clock,
        tokens=components.resume_tokens,
        lifecycle=lifecycle,
        wait_seconds_max=settings.wait_seconds_max,
    )


def _build_portal_links(components: Components, settings: Settings) -> PortalLinks:
    portal_url = f"{settings.base_url}{PORTAL_PATH}"
    return PortalLinks(store=components.store, ids=components.ids, portal_url=portal_url, has_dashboard=settings.ui)


def _build_upstream_reloads(components: Components) -> UpstreamReloads:
    catalog = components.upstreams.tool_catalog
    return UpstreamReloads(store=components.store, configuration=components.configuration, catalog=catalog)


def build_services(components: Components, settings: Settings) -> Services:
    store, clock, lifecycle = components.store, components.environment.clock, Lifecycle()
    quotas = components.quotas
    verification = _build_verification(components, settings, lifecycle)
    attempts = AttemptScheduler(store=store, clock=clock, targets=build_target_policy(settings))
    payload_schemas = JsonPayloadSchemas()
    event_types = _build_event_types(components, lifecycle, payload_schemas)
    registrations = _build_registrations(components, lifecycle, verification, attempts, event_types)
    new_calls = NewCallWriter(ids=components.ids, tokens=components.resume_tokens, registrations=registrations)
    upstream_controls = UpstreamControls(store=store, clock=clock, catalog=components.upstreams.tool_catalog)
    return Services(
        body_admission=BodyAdmission(clock=clock),
        calls=_build_calls(components, settings, lifecycle, new_calls, upstream_controls),
        bulk_cancellations=BulkCancellations(store=store, recorder=components.recorder, quotas=quotas),
        input_answers=InputAnswers(store, components.recorder, RequestedSchemas()),
        task_adoption=_build_task_adoption(components, lifecycle, new_calls),
        reports=_build_reports(components, lifecycle, new_calls),
        registrations=registrations,
        webhooks=_build_webhooks(components, lifecycle, verification, attempts, event_types),
        events=Events(store=store, clock=clock, lifecycle=lifecycle, wait_seconds_max=settings.wait_seconds_max),
        event_streams=EventStreams(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle, tails=LogTails(store)),
        event_types=event_types,
        event_subscriptions=_build_event_subscriptions(
            components, settings, lifecycle, verification, attempts, event_types
        ),
        event_publishing=_build_event_publishing(components, lifecycle, payload_schemas),
        deliveries=Deliveries(store=store),
        replays=_build_replays(components, lifecycle, attempts),
        bulk_redeliveries=_build_bulk_redeliveries(components, lifecycle, attempts),
        call_resumes=components.call_resumes,
        call_histories=CallHistories(store=store),
        lookups=Lookups(store=store, catalog=components.upstreams.tool_catalog),
        live_lists=LiveLists(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle),
        call_resumption=_build_call_resumption(components, settings, lifecycle),
        api_keys=ApiKeys(store=store, ids=components.ids),
        sign_ins=SignIns(store=store, ids=components.ids),
        portal_links=_build_portal_links(components, settings),
        audit_log=AuditLog(store=store),
        insights=_build_insights(components, settings, lifecycle, upstream_controls),
        upstream_controls=upstream_controls,
        upstream_logins=_build_upstream_logins(components, settings, lifecycle),
        erasures=_build_erasures(components, lifecycle),
        upstream_reloads=_build_upstream_reloads(components),
        operators=Operators(store=store, clock=clock),
        lifecycle=lifecycle,
    )
