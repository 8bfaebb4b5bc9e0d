"""What a test does with a service in this process (`tests.support.service` opens it): clients, and the runner's part."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
from fastapi import FastAPI

from ringback.domain import inputs
from ringback.domain.call import MRTR_DRIVER, Call, CallPhase, Handle, Progress, enter_phase
from ringback.domain.call_outcome import CallCompletion, completion_from_result
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState, DeliveryUpdate
from ringback.domain.ids import CallId, IdGenerator, WebhookId
from ringback.domain.inputs import ELICITATION_METHOD
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Principal, Scope
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.janitor.config import JanitorConfig, Retention
from ringback.janitor.janitor import Janitor
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.recorder import Recorder
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.services import Services
from tests.support.clock import OffsetClock
from tests.support.databases import count_rows
from tests.support.declared_headers import require_declared_headers
from tests.support.fixed_upstreams import FakeUpstreamConnection
from tests.support.login_flow import ScriptedLoginFlow
from tests.support.stores import FailingStore
from tests.support.whole_deliveries import list_whole_deliveries

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
    catch_ups: CatchUps
    measurements: Measurements
    quotas: QuotaEnforcer
    folder: Path
    login_flow: ScriptedLoginFlow
    connections: Mapping[str, FakeUpstreamConnection]
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

    async def request_input(self, call_id: str, *names: str, schema: Any = None) -> Call:
        """Record a request for input and park the call, as the runner does."""
        form = {} if schema is None else {"requestedSchema": schema}
        asked = {name: {"method": ELICITATION_METHOD, "params": {"message": f"{name}?", **form}} for name in names}

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
        return await self.store.read(lambda tx: list_whole_deliveries(tx, Principal(principal)))

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
        await Janitor(
            store=self.store, recorder=self.recorder, measurements=self.measurements, clock=self.clock, config=config
        ).run_once()

    def count_rows(self) -> dict[str, int]:
        """The number of rows of each table except keys, which a rejected request must not change."""
        return {table: count for table, count in count_rows(self.folder).items() if table != "api_keys"}


async def _read_call(tx: Transaction, call_id: str) -> Call:
    call = await tx.calls.get(CallId(call_id))
    assert call is not None
    return call
