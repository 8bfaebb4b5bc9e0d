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
from typing import Literal, cast

import httpx

from ringback.admission import AdmissionGate
from ringback.api.app import create_app
from ringback.api.context import ApiConfig
from ringback.api.login_pages import LoginPageConfig
from ringback.attended_calls import AttendedCalls
from ringback.bootstrap.service_parts import ServiceParts, ServicesConfig
from ringback.bootstrap.services import build_services
from ringback.domain.client_address import Network
from ringback.domain.ids import IdGenerator
from ringback.domain.upstream_logins import CredentialsScope
from ringback.identity.authenticators import AnonymousAuthenticator, BearerAuthenticator
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff, DeliveryHandoff
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.limits.quotas import QuotaEnforcer, QuotaOverrides, Quotas
from ringback.services.logins.login_waits import LoginWaits
from ringback.services.webhooks.verification import VerificationPolicy
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.ui.context import UiContext
from ringback.ui.routes import make_ui_routes
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from tests.support.clock import OffsetClock
from tests.support.databases import TEST_DATABASES
from tests.support.fixed_upstreams import (
    TOOLS,
    FakeUpstreamConnection,
    FixedUpstreamConfiguration,
    NoUpstreamConnections,
    NoUpstreamTasks,
)
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
        stack.enter_context(TEST_DATABASES.keep_connection(folder))
        connections = {name: FakeUpstreamConnection(name) for name in TOOLS}
        connections |= {name: FakeUpstreamConnection(name, owner) for name, owner in (hosted or {}).items()}
        keeper, flow = QuotaEnforcer(quotas or Quotas(), clock=clock, overrides=quota_overrides), ScriptedLoginFlow()
        parts = _build_parts(store, clock, keeper, flow, connections, public_url=public_url)
        services = build_services(
            parts,
            ServicesConfig(
                public_url=public_url,
                verification=VerificationPolicy(first_challenge_wait_seconds=0.0),
                login_redirect_urls=login_redirect_urls,
            ),
        )
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
            ids=parts.ids,
            recorder=parts.recorder,
            catch_ups=parts.catch_ups,
            measurements=parts.measurements,
            quotas=keeper,
            folder=folder,
            login_flow=flow,
            connections=connections,
            failing_workers=failing,
            failing_endpoints=failing_endpoints,
            _stack=stack,
        )


def _build_parts(
    store: FailingStore,
    clock: OffsetClock,
    quotas: QuotaEnforcer,
    login_flow: ScriptedLoginFlow,
    connections: Mapping[str, FakeUpstreamConnection],
    *,
    public_url: str,
) -> ServiceParts:
    ids, attended_calls, measurements = IdGenerator(clock), AttendedCalls(), Measurements()
    tokens = CallResumeTokens(
        ResumeTokenCodec([os.urandom(32)], audience="ringback"), result_retention_seconds=RETENTION_SECONDS
    )
    fan_out = FanOut(
        ids=ids, payloads=PayloadBuilder(tokens=tokens, public_url=PUBLIC_URL), delivery_handoff=DeliveryHandoff()
    )
    recorder = Recorder(
        ids=ids,
        fan_out=fan_out,
        attended_calls=attended_calls,
        measurements=measurements,
        result_retention_seconds=RETENTION_SECONDS,
        progress_quota=quotas,
    )
    return ServiceParts(
        store=store,
        clock=clock,
        ids=ids,
        recorder=recorder,
        catch_ups=CatchUps(fan_out),
        attended_calls=attended_calls,
        measurements=measurements,
        resume_tokens=tokens,
        call_resumes=CallResumeRecorder(store=store, clock=clock),
        call_handoff=CallHandoff(),
        admission=AdmissionGate(),
        quotas=quotas,
        target_guard=TargetGuard(TargetPolicy(), resolver=FakeResolver({"inside.example": ["10.0.0.1"]})),
        requester=HttpxSender(httpx.MockTransport(answer_challenge), clock=clock),
        tool_catalog=UpstreamToolCatalog(ConnectionDirectory(cast("Mapping[str, UpstreamConnection]", connections))),
        event_catalog=UpstreamEventCatalog({}),
        task_lookup=NoUpstreamTasks(),
        configuration=FixedUpstreamConfiguration(),
        upstream_connections=NoUpstreamConnections(),
        login_flow=login_flow,
        login_waits=LoginWaits(recorder=recorder, public_url=public_url),
    )
