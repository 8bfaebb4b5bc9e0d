"""The service in this process behind its HTTP interface: real store, services and API, but no runner.

    async with running_service(tmp_path) as service:
        alice = await service.create_client("alice")
        started = await alice.post("/v1/calls", json=CALL_BODY)
        await service.finish_call(started.json()["call"]["id"])

No upstream is called: the test ends calls as the runner would, in a transaction of the store.
"""

import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple, cast

import httpx

from ringback.admission import AdmissionGate
from ringback.api.app import ApiConfig, Services, create_app
from ringback.api.login_pages import LoginPageConfig
from ringback.attended_calls import AttendedCalls
from ringback.domain.client_address import Network
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.domain.upstream_logins import CredentialsScope
from ringback.identity.authenticators import AnonymousAuthenticator, BearerAuthenticator
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff, DeliveryHandoff
from ringback.protocol.mcp_events.grants import TtlPolicy
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
from ringback.services.calls.resume_recorder import CallResumeRecorder
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
from ringback.services.limits.quotas import QuotaEnforcer, QuotaOverrides, Quotas
from ringback.services.live import LiveLists
from ringback.services.logins.login_tokens import LoginRevocations
from ringback.services.logins.login_waits import LoginWaits
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
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.ui.context import UiContext
from ringback.ui.redirects import PORTAL_PATH
from ringback.ui.routes import make_ui_routes
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from tests.support.clock import OffsetClock
from tests.support.fixed_upstreams import TOOLS, FakeUpstreamConnection, FixedUpstreamConfiguration, NoUpstreamTasks
from tests.support.login_flow import ScriptedLoginFlow
from tests.support.resolvers import FakeResolver
from tests.support.service_under_test import (
    CALL_BODY,
    CALLBACK_URL,
    PUBLIC_URL,
    REQUEST_BYTES_MAX,
    RESULT,
    RETENTION_SECONDS,
    ServiceUnderTest,
)
from tests.support.stores import FailingStore, make_sealer, open_test_store
from tests.support.verifications import answer_challenge

__all__ = [
    "CALLBACK_URL",
    "CALL_BODY",
    "PUBLIC_URL",
    "REQUEST_BYTES_MAX",
    "RESULT",
    "RETENTION_SECONDS",
    "ServiceUnderTest",
    "running_service",
]


class _Recording(NamedTuple):
    recorder: Recorder
    catch_ups: CatchUps
    attended_calls: AttendedCalls
    measurements: Measurements


@asynccontextmanager
async def running_service(
    folder: Path,
    *,
    auth: Literal["keys", "off"] = "keys",
    public_url: str = PUBLIC_URL,
    allowed_hosts: Collection[str] = (),
    allowed_origins: Collection[str] = (),
    trusted_proxies: Collection[Network] = (),
    client_requests_max: int = 256,
    quotas: Quotas | None = None,
    quota_overrides: QuotaOverrides | None = None,
    hosted: Mapping[str, CredentialsScope] | None = None,
    login_redirect_urls: Collection[str] = (),
    portal_origins: Collection[str] = (),
) -> AsyncGenerator[ServiceUnderTest]:
    """A service whose files are in `folder`. `hosted` are upstreams with logins, besides those with tools."""
    clock = OffsetClock()
    async with AsyncExitStack() as stack:
        store = FailingStore(await stack.enter_async_context(open_test_store(folder, clock)))
        ids = IdGenerator(clock)
        tokens = CallResumeTokens(
            ResumeTokenCodec([os.urandom(32)], audience="ringback"), result_retention_seconds=RETENTION_SECONDS
        )
        attended_calls, measurements = AttendedCalls(), Measurements()
        fan_out = FanOut(
            ids=ids,
            payloads=PayloadBuilder(tokens=tokens, public_url=PUBLIC_URL),
            delivery_handoff=DeliveryHandoff(),
        )
        recorder = Recorder(
            ids=ids,
            fan_out=fan_out,
            attended_calls=attended_calls,
            measurements=measurements,
            result_retention_seconds=RETENTION_SECONDS,
        )
        recording = _Recording(recorder, CatchUps(fan_out), attended_calls, measurements)
        guard = TargetGuard(TargetPolicy(), resolver=FakeResolver({"inside.example": ["10.0.0.1"]}))
        keeper = QuotaEnforcer(quotas or Quotas(), clock=clock, overrides=quota_overrides)
        connections = {name: FakeUpstreamConnection(name) for name in TOOLS}
        connections |= {name: FakeUpstreamConnection(name, owner) for name, owner in (hosted or {}).items()}
        flow = ScriptedLoginFlow()
        logins = LoginConfig(public_url=public_url, redirect_urls=frozenset(login_redirect_urls))
        services = _services(store, clock, ids, tokens, recording, guard, keeper, (connections, flow, logins))
        failing: set[str] = set()
        failing_endpoints: set[str] = set()
        config = ApiConfig(
            authenticator=BearerAuthenticator(keys=services.api_keys) if auth == "keys" else AnonymousAuthenticator(),
            public_url=public_url,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            trusted_proxies=trusted_proxies,
            client_requests_max=client_requests_max,
            request_bytes_max=REQUEST_BYTES_MAX,
            failing_workers=lambda: frozenset(failing),
            failing_endpoints=lambda: frozenset(failing_endpoints),
        )
        yield ServiceUnderTest(
            app=create_app(
                services,
                config=config,
                login_pages=LoginPageConfig(
                    sealer=make_sealer(),
                    clock=clock,
                    requires_key=auth == "keys",
                    redirect_urls=login_redirect_urls,
                ),
                ui_routes=make_ui_routes(
                    UiContext(
                        services=services,
                        config=config,
                        sealer=make_sealer(),
                        clock=clock,
                        requires_key=auth == "keys",
                        portal_origins=portal_origins,
                    )
                ),
            ),
            services=services,
            store=store,
            clock=clock,
            ids=ids,
            recorder=recorder,
            catch_ups=recording.catch_ups,
            measurements=measurements,
            quotas=keeper,
            folder=folder,
            login_flow=flow,
            connections=connections,
            failing_workers=failing,
            failing_endpoints=failing_endpoints,
            _stack=stack,
        )


def _services(
    store: Store,
    clock: OffsetClock,
    ids: IdGenerator,
    tokens: CallResumeTokens,
    recording: _Recording,
    guard: TargetGuard,
    keeper: QuotaEnforcer,
    hosted: tuple[Mapping[str, FakeUpstreamConnection], ScriptedLoginFlow, LoginConfig],
) -> Services:
    connections, login_flow, login_config = hosted
    recorder, catch_ups, attended_calls, measurements = recording
    lifecycle = Lifecycle()
    catalog = UpstreamToolCatalog(ConnectionDirectory(cast("Mapping[str, UpstreamConnection]", connections)))
    on_demand = RequestedDeliveries(ids=ids)
    verification = WebhookVerification(
        store=store,
        clock=clock,
        lifecycle=lifecycle,
        targets=guard.policy,
        policy=VerificationPolicy(first_challenge_wait_seconds=0.0),
    )
    attempts = AttemptScheduler(store=store, clock=clock, targets=guard.policy)
    upstream_controls = UpstreamControls(store=store, clock=clock, catalog=catalog)
    payload_schemas = JsonPayloadSchemas()
    event_types = EventTypes(
        store=store,
        clock=clock,
        lifecycle=lifecycle,
        catalog=UpstreamEventCatalog({}),
        payload_schemas=payload_schemas,
    )
    event_subscriptions = EventSubscriptions(
        store=store,
        clock=clock,
        catch_ups=catch_ups,
        verification=verification,
        proofs=CallbackProofs(
            store=store,
            ids=ids,
            sender=ChallengeSender(
                clock=clock,
                ids=ids,
                requester=HttpxSender(httpx.MockTransport(answer_challenge), clock=clock),
                policy=guard.policy,
            ),
            verification=verification,
            targets=guard.policy,
        ),
        attempts=attempts,
        quotas=keeper,
        lifecycle=lifecycle,
        catalog=catalog,
        event_types=event_types,
        ttl_policy=TtlPolicy(),
    )
    registrations = WebhookRegistrations(
        store=store,
        clock=clock,
        ids=ids,
        recorder=recorder,
        catch_ups=catch_ups,
        guard=guard,
        quotas=keeper,
        lifecycle=lifecycle,
        verification=verification,
        attempts=attempts,
        catalog=catalog,
        event_types=event_types,
    )
    webhooks = Webhooks(
        store=store,
        ids=ids,
        recorder=recorder,
        requested_deliveries=on_demand,
        attempts=attempts,
        guard=guard,
        quotas=keeper,
        lifecycle=lifecycle,
        verification=verification,
        catalog=catalog,
        event_types=event_types,
    )
    new_calls = NewCallWriter(ids=ids, tokens=tokens, registrations=registrations)
    calls = Calls(
        store=store,
        clock=clock,
        recorder=recorder,
        attended_calls=attended_calls,
        starter=CallStarter(
            catalog=catalog,
            new_calls=new_calls,
            quotas=keeper,
            attended_calls=attended_calls,
            upstream_controls=upstream_controls,
        ),
        quotas=keeper,
        lifecycle=lifecycle,
        call_handoff=CallHandoff(),
        admission=AdmissionGate(),
    )
    return Services(
        body_admission=BodyAdmission(clock=clock),
        calls=calls,
        bulk_cancellations=BulkCancellations(store=store, recorder=recorder, quotas=keeper),
        input_answers=InputAnswers(store, recorder, RequestedSchemas()),
        task_adoption=TaskAdoption(
            store=store,
            tasks=NoUpstreamTasks(),
            new_calls=new_calls,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        reports=CallReports(
            store=store,
            recorder=recorder,
            new_calls=new_calls,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        registrations=registrations,
        webhooks=webhooks,
        events=Events(store=store, clock=clock, lifecycle=lifecycle),
        event_streams=EventStreams(store=store, clock=clock, quotas=keeper, lifecycle=lifecycle, tails=LogTails(store)),
        event_types=event_types,
        event_subscriptions=event_subscriptions,
        event_publishing=EventPublishing(
            store=store, recorder=recorder, quotas=keeper, lifecycle=lifecycle, payload_schemas=payload_schemas
        ),
        deliveries=Deliveries(store=store),
        replays=DeliveryReplays(
            store=store, requested_deliveries=on_demand, attempts=attempts, quotas=keeper, lifecycle=lifecycle
        ),
        bulk_redeliveries=BulkRedeliveries(
            store=store, requested_deliveries=on_demand, attempts=attempts, quotas=keeper, lifecycle=lifecycle
        ),
        call_resumes=CallResumeRecorder(store=store, clock=clock),
        call_histories=CallHistories(store=store),
        lookups=Lookups(store=store, catalog=catalog),
        live_lists=LiveLists(store=store, clock=clock, quotas=keeper, lifecycle=lifecycle),
        call_resumption=CallResumption(store=store, clock=clock, tokens=tokens, lifecycle=lifecycle),
        api_keys=ApiKeys(store=store, ids=ids),
        sign_ins=SignIns(store=store, ids=ids),
        portal_links=PortalLinks(store=store, ids=ids, portal_url=f"{login_config.public_url}{PORTAL_PATH}"),
        audit_log=AuditLog(store=store),
        insights=Insights(
            store=store,
            clock=clock,
            catalog=catalog,
            upstream_controls=upstream_controls,
            quotas=keeper,
            lifecycle=lifecycle,
            measurements=measurements,
            public_url=login_config.public_url,
        ),
        upstream_controls=upstream_controls,
        upstream_logins=UpstreamLogins(
            store=store,
            clock=clock,
            ids=ids,
            catalog=catalog,
            flow=login_flow,
            waits=LoginWaits(recorder=recorder, public_url=login_config.public_url),
            lifecycle=lifecycle,
            config=login_config,
        ),
        upstream_reloads=UpstreamReloads(store=store, configuration=FixedUpstreamConfiguration(), catalog=catalog),
        operators=Operators(store=store, clock=clock),
        erasures=Erasures(
            store=store, ids=ids, recorder=recorder, lifecycle=lifecycle, revocations=LoginRevocations(login_flow)
        ),
        lifecycle=lifecycle,
    )
