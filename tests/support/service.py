"""The service in this process behind its HTTP interface: real store, services and API, but no runner.

    async with running_service(tmp_path) as service:
        alice = await service.client("alice")
        started = await alice.post("/v1/calls", json=CALL_BODY)
        await service.finish(started.json()["call"]["id"])

No upstream is called: the test ends calls as the runner would, in a transaction of the store.
"""

import os
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx
from fastapi import FastAPI

from ringback.admission import AdmissionGate
from ringback.api.app import ApiConfig, Services, create_app
from ringback.domain import inputs
from ringback.domain.call import MRTR_DRIVER, Call, CallPhase, Handle, Progress, enter_phase
from ringback.domain.call_outcome import CallCompletion, completion_from_result
from ringback.domain.call_rows import CallChange
from ringback.domain.client_address import Network
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState, DeliveryUpdate
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId, IdGenerator, WebhookId
from ringback.domain.inputs import ELICITATION_METHOD
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Principal, Scope
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.identity.authenticators import AnonymousAuthenticator, BearerAuthenticator
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.administration import Administration
from ringback.services.adoption import TaskAdoption
from ringback.services.api_keys import ApiKeys
from ringback.services.attempt_scheduling import AttemptScheduler
from ringback.services.bulk_redelivery import BulkRedeliveries
from ringback.services.callback_proofs import CallbackProofs
from ringback.services.calls import Calls
from ringback.services.cancellation import BulkCancellations
from ringback.services.deliveries import Deliveries
from ringback.services.erasures import Erasures
from ringback.services.event_publishing import EventPublishing
from ringback.services.event_subscriptions import EventSubscriptions
from ringback.services.event_types import EventTypes
from ringback.services.events import Events
from ringback.services.input_answers import InputAnswers
from ringback.services.insights import Insights
from ringback.services.lifecycle import Lifecycle
from ringback.services.operators import Operators
from ringback.services.quotas import QuotaEnforcer, QuotaOverrides, Quotas
from ringback.services.registrations import WebhookRegistrations
from ringback.services.replays import DeliveryReplays
from ringback.services.reports import CallReports
from ringback.services.resume import CallResumption
from ringback.services.upstream_controls import UpstreamControls
from ringback.services.verification import VerificationPolicy, WebhookVerification
from ringback.services.webhooks import Webhooks
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from tests.support.clock import OffsetClock
from tests.support.databases import count_rows
from tests.support.declared_headers import require_declared_headers
from tests.support.fixed_upstreams import TOOLS, FakeUpstreamConnection, FixedUpstreamConfiguration, NoUpstreamTasks
from tests.support.resolvers import FakeResolver
from tests.support.stores import FailingStore, open_test_store
from tests.support.verifications import answer_challenge

PUBLIC_URL: Final = "https://ringback.example"
CALLBACK_URL: Final = "https://agent.example/callback"
RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
RETENTION_SECONDS: Final = 7 * 86400.0
REQUEST_BYTES_MAX: Final = 64 * 1024

CALL_BODY: Final[dict[str, Any]] = {
    "upstream": "git",
    "tool": "git_log",
    "arguments": {"repo_path": "/srv/repo"},
    "client_session_id": "session-1",
    "correlation_id": "report-1",
}


@dataclass(slots=True, kw_only=True)
class ServiceUnderTest:
    app: FastAPI
    services: Services
    store: FailingStore
    clock: OffsetClock
    ids: IdGenerator
    recorder: Recorder
    quotas: QuotaEnforcer
    folder: Path
    failing_workers: set[str] = field(default_factory=set[str])
    """Names of workers that are to count as failing."""
    failing_endpoints: set[str] = field(default_factory=set[str])
    """Paths of MCP endpoints that are to count as failing."""
    _stack: AsyncExitStack

    async def create_client(self, principal: str, **key: Any) -> httpx.AsyncClient:
        """An HTTP client with an API key of this principal; `scopes` and `upstreams` restrict the key."""
        return await self.create_anonymous_client(
            headers={"Authorization": f"Bearer {await self.create_api_key(principal, **key)}"}
        )

    async def create_anonymous_client(self, **options: Any) -> httpx.AsyncClient:
        """An HTTP client without a key."""
        options = {"base_url": PUBLIC_URL, "event_hooks": {"response": [require_declared_headers]}} | options
        client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), **options)
        return await self._stack.enter_async_context(client)

    async def create_api_key(
        self,
        principal: str,
        *,
        scopes: frozenset[Scope] = DEFAULT_SCOPES,
        upstreams: frozenset[str] | None = None,
    ) -> str:
        _, text = await self.services.api_keys.create_key(principal, name="test", scopes=scopes, upstreams=upstreams)
        return text

    async def finish_call(self, call_id: str, ending: CallCompletion | None = None) -> Call:
        """End a call, as the runner does."""

        async def finish(tx: Transaction) -> Call | None:
            return await self.recorder.finish_call(
                tx,
                await _read_call(tx, call_id),
                ending or completion_from_result(RESULT, is_error=False),
                lease_token=None,
            )

        ended = await self.store.write(finish)
        assert ended is not None
        return ended

    async def mark_dispatched(self, call_id: str) -> None:
        """Mark a call as dispatched, as the runner does."""

        async def dispatch(tx: Transaction) -> bool:
            call = await _read_call(tx, call_id)
            running = replace(
                call,
                phase=CallPhase.RUNNING,
                dispatched_at=tx.now(),
                runs=1,
                lease_token="lease_1",
                updated_at=tx.now(),
            )
            return await tx.calls.update(running, CallChange.QUEUED, expected=call.status, lease_token=None)

        assert await self.store.write(dispatch)

    async def request_input(self, call_id: str, *names: str) -> Call:
        """Record a request for input and park the call, as the runner does."""
        asked = {name: {"method": ELICITATION_METHOD, "params": {"message": f"{name}?"}} for name in names}

        async def park(tx: Transaction) -> Call:
            call = await _read_call(tx, call_id)
            handle = Handle(driver=MRTR_DRIVER, data={"request_state": None, "round": 1})
            dispatched = replace(call, phase=CallPhase.RUNNING, dispatched_at=tx.now(), runs=1, handle=handle)
            parked = enter_phase(inputs.request_input(dispatched, asked, now=tx.now()), CallPhase.PARKED, now=tx.now())
            assert await self.recorder.record_input_requests(tx, call, parked, lease_token=None)
            return parked

        return await self.store.write(park)

    async def read_call(self, call_id: str) -> Call:
        """The stored call."""
        return await self.store.read(lambda tx: _read_call(tx, call_id))

    async def record_progress(self, call_id: str, progress: Progress) -> None:
        """Record progress of a dispatched call."""

        async def record(tx: Transaction) -> bool:
            return await self.recorder.record_progress(
                tx, await _read_call(tx, call_id), progress, lease_token="lease_1"
            )

        assert await self.store.write(record)

    async def read_deliveries(self, principal: str) -> list[Delivery]:
        """All deliveries, newest first."""
        return list(
            await self.store.read(
                lambda tx: tx.deliveries.list_page(Principal(principal), DeliveryFilter(), position=None, limit=1000)
            )
        )

    async def settle_deliveries(self, deliveries: Sequence[Delivery], state: DeliveryState) -> None:
        """End these deliveries, as the dispatcher does; other due deliveries stay pending."""
        wanted = {delivery.id for delivery in deliveries}

        async def settle(tx: Transaction) -> None:
            for webhook_id in {delivery.webhook_id for delivery in deliveries}:
                now = tx.now()
                leased = await tx.delivery_queue.lease_due(
                    webhook_id,
                    now=now,
                    owner="dispatcher-1",
                    token="lease_1",
                    until=now + seconds(60),
                    limit=1000,
                    ordered=False,
                )
                settled = [
                    DeliveryUpdate(
                        delivery=delivery,
                        state=state if delivery.id in wanted else DeliveryState.PENDING,
                        due_at=delivery.due_at,
                        category=None,
                        finished_at=now if delivery.id in wanted else None,
                    )
                    for delivery in leased
                ]
                assert wanted & set(await tx.delivery_queue.apply_updates(settled))

        await self.store.write(settle)

    async def set_webhook_state(self, webhook_id: str, state: WebhookState) -> None:
        """Put a webhook into a state that clients cannot set."""

        async def update(tx: Transaction) -> bool:
            webhook = await tx.webhooks.get(WebhookId(webhook_id))
            assert webhook is not None
            return await tx.webhooks.update(replace(webhook, state=state), WebhookPart.STATE)

        assert await self.store.write(update)

    async def run_janitor(self) -> None:
        """Run one round of the janitor, which archives what has expired."""
        config = JanitorConfig(retention=Retention())
        await Janitor(store=self.store, recorder=self.recorder, clock=self.clock, config=config).run_once()

    def count_rows(self) -> dict[str, int]:
        """The number of rows of each table except keys, which a rejected request must not change."""
        return {table: count for table, count in count_rows(self.folder).items() if table != "api_keys"}


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
) -> AsyncGenerator[ServiceUnderTest]:
    """A service whose files are in `folder`."""
    clock = OffsetClock()
    async with AsyncExitStack() as stack:
        store = FailingStore(await stack.enter_async_context(open_test_store(folder, clock)))
        ids = IdGenerator(clock)
        tokens = CallResumeTokens(
            ResumeTokenCodec([os.urandom(32)], audience="ringback"), result_retention_seconds=RETENTION_SECONDS
        )
        recorder = Recorder(
            ids=ids,
            payloads=PayloadBuilder(tokens=tokens, public_url=PUBLIC_URL),
            result_retention_seconds=RETENTION_SECONDS,
        )
        guard = TargetGuard(TargetPolicy(), resolver=FakeResolver({"inside.example": ["10.0.0.1"]}))
        keeper = QuotaEnforcer(quotas or Quotas(), clock=clock, overrides=quota_overrides)
        services = _services(store, clock, ids, tokens, recorder, guard, keeper)
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
            app=create_app(services, config=config),
            services=services,
            store=store,
            clock=clock,
            ids=ids,
            recorder=recorder,
            quotas=keeper,
            folder=folder,
            failing_workers=failing,
            failing_endpoints=failing_endpoints,
            _stack=stack,
        )


def _services(
    store: Store,
    clock: OffsetClock,
    ids: IdGenerator,
    tokens: CallResumeTokens,
    recorder: Recorder,
    guard: TargetGuard,
    keeper: QuotaEnforcer,
) -> Services:
    lifecycle = Lifecycle()
    catalog = UpstreamToolCatalog({name: cast("UpstreamConnection", FakeUpstreamConnection(name)) for name in TOOLS})
    on_demand = RequestedDeliveries(ids=ids)
    verification = WebhookVerification(
        store=store,
        clock=clock,
        lifecycle=lifecycle,
        targets=guard.policy,
        policy=VerificationPolicy(first_challenge_wait_seconds=0.0),
    )
    attempts = AttemptScheduler(store=store, targets=guard.policy)
    upstream_controls = UpstreamControls(store=store, clock=clock, catalog=catalog)
    event_types = EventTypes(store=store, clock=clock, lifecycle=lifecycle, catalog=UpstreamEventCatalog({}))
    event_subscriptions = EventSubscriptions(
        store=store,
        clock=clock,
        recorder=recorder,
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
    calls = Calls(
        store=store,
        clock=clock,
        ids=ids,
        catalog=catalog,
        recorder=recorder,
        tokens=tokens,
        registrations=registrations,
        quotas=keeper,
        lifecycle=lifecycle,
        post_commit=CallHandoff(),
        admission=AdmissionGate(),
        upstream_controls=upstream_controls,
    )
    return Services(
        calls=calls,
        bulk_cancellations=BulkCancellations(store=store, recorder=recorder, quotas=keeper),
        input_answers=InputAnswers(store, recorder),
        task_adoption=TaskAdoption(
            store=store,
            ids=ids,
            tasks=NoUpstreamTasks(),
            tokens=tokens,
            registrations=registrations,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        reports=CallReports(
            store=store,
            ids=ids,
            recorder=recorder,
            tokens=tokens,
            registrations=registrations,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        registrations=registrations,
        webhooks=webhooks,
        events=Events(store=store, clock=clock, quotas=keeper, lifecycle=lifecycle),
        event_types=event_types,
        event_subscriptions=event_subscriptions,
        event_publishing=EventPublishing(store=store, recorder=recorder, quotas=keeper, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        replays=DeliveryReplays(
            store=store, requested_deliveries=on_demand, attempts=attempts, quotas=keeper, lifecycle=lifecycle
        ),
        bulk_redeliveries=BulkRedeliveries(
            store=store, requested_deliveries=on_demand, attempts=attempts, quotas=keeper, lifecycle=lifecycle
        ),
        call_resumption=CallResumption(store=store, clock=clock, tokens=tokens, lifecycle=lifecycle),
        api_keys=ApiKeys(store=store, ids=ids),
        insights=Insights(
            store=store,
            clock=clock,
            catalog=catalog,
            upstream_controls=upstream_controls,
            quotas=keeper,
            lifecycle=lifecycle,
            measurements=recorder.measurements,
        ),
        upstream_controls=upstream_controls,
        administration=Administration(store=store, configuration=FixedUpstreamConfiguration()),
        operators=Operators(store=store),
        erasures=Erasures(store=store, ids=ids, recorder=recorder, lifecycle=lifecycle),
        lifecycle=lifecycle,
    )


async def _read_call(tx: Transaction, call_id: str) -> Call:
    call = await tx.calls.get(CallId(call_id))
    assert call is not None
    return call
