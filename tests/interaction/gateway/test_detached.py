"""`when: detached`: a webhook gets no callback for a response that the waiting client read, and one for all others."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import httpx
import pytest

from ringback import attended_calls
from ringback.bootstrap import Environment
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals
from ringback.domain.webhook import INLINE_GRACE_SECONDS
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.application import SECRET
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.mcp_wire import Json, LegacyClientSession, ModernClient
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R22")

T = TypeVar("T")
WAITING_CLIENT: Final = 30.0


@dataclass(slots=True)
class PausingStore:
    """Detects the moment between the end of a call and its response, and can pause there."""

    store: Store | None = None
    may_continue: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    marked_unattended: asyncio.Event = field(default_factory=asyncio.Event)

    def wrapping(self, store: Store) -> Store:
        self.store = store
        self.may_continue.set()
        return self

    @property
    def is_exclusive(self) -> bool:
        assert self.store is not None
        return self.store.is_exclusive

    @property
    def signals(self) -> Signals:
        assert self.store is not None
        return self.store.signals

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        if work.__qualname__.startswith("ResultReader.read_result.<locals>"):
            self.ended.set()
            await self.may_continue.wait()
        return await self.store.read(work)

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        return await self.store.scan(principal, work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        value = await self.store.write(work)
        if work.__qualname__.startswith("Calls.mark_unattended.<locals>"):
            self.marked_unattended.set()
        return value

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        del principal
        return await self.write(work)

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.write(work)


@dataclass(frozen=True, slots=True)
class DetachedHarness:
    gate: GatewayHarness
    clock: OffsetClock
    pausing_store: PausingStore

    def make_callback(self, when: str = "detached") -> Json:
        return {"url": self.gate.callback_receiver.url, "secret": SECRET, "when": when}

    def start_call(self, tool: str, name: str, *, wait_seconds: float = WAITING_CLIENT) -> asyncio.Task[httpx.Response]:
        body: Json = {
            "upstream": "paint",
            "tool": tool,
            "wait_seconds": wait_seconds,
            "correlation_id": name,
            "client_session_id": name,
            "callback": self.make_callback(),
        }
        return asyncio.create_task(self.gate.request_rest("POST", "/v1/calls", json=body))

    async def read_delivery(self, name: str) -> Json | None:
        (call,) = await self.gate.list_calls(name)
        listed = (await self.gate.request_rest("GET", f"/v1/deliveries?call_id={call['id']}")).json()["deliveries"]
        return listed[0] if listed else None

    async def wait_until_cancelled(self, name: str) -> Json:
        async def cancelled() -> bool:
            delivery = await self.read_delivery(name)
            return delivery is not None and delivery["state"] == "cancelled"

        await wait_until(cancelled)
        delivery = await self.read_delivery(name)
        assert delivery is not None
        return delivery


@pytest.fixture(scope="module")
async def harness(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[DetachedHarness]:
    clock, watched = OffsetClock(), PausingStore()
    world = Environment(clock=clock, wrap_store=watched.wrapping)
    async with running_gateway(module_path_factory.mktemp("gate"), only={"paint"}, environment=world) as gate:
        yield DetachedHarness(gate, clock, watched)


async def close_request(waiting: asyncio.Task[Any]) -> None:
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("surface", ["rest", "modern", "legacy"])
async def test_a_detached_webhook_gets_no_callback_for_a_response_that_was_read(
    harness: DetachedHarness, surface: Literal["rest", "modern", "legacy"]
) -> None:
    if surface == "rest":
        assert (await harness.start_call("count", surface)).status_code == 200
    elif surface == "modern":
        await call_tool(await harness.gate.make_modern_client(), "count", surface, harness.make_callback())
    else:
        async with harness.gate.open_legacy_session() as session:
            await call_tool(session, "count", surface, harness.make_callback())

    delivery = await harness.wait_until_cancelled(surface)

    assert delivery["attempt_count"] == 0
    harness.clock.advance(2 * INLINE_GRACE_SECONDS)
    assert not [received for received in harness.gate.callback_receiver.callbacks if received.correlation_id == surface]


async def call_tool(client: ModernClient | LegacyClientSession, tool: str, name: str, callback: Json) -> Json:
    meta = {"ringback/callback": callback, "ringback/correlationId": name, "ringback/clientSessionId": name}
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", {"name": tool, "arguments": {}, "_meta": meta}, **declare)


async def test_a_client_that_did_not_wait_gets_a_callback_at_once(harness: DetachedHarness) -> None:
    await harness.start_call("count", "did-not-wait", wait_seconds=0.0)
    assert (await harness.gate.callback_receiver.wait_for_callback("did-not-wait")).data["answered_inline"] is False


async def test_a_client_that_disconnected_before_the_end_gets_a_callback_at_once(harness: DetachedHarness) -> None:
    harness.gate.interop.reset()
    harness.pausing_store.marked_unattended.clear()
    waiting = harness.start_call("wait", "hung-up")
    await harness.gate.interop.wait_until_held()
    await close_request(waiting)
    await asyncio.wait_for(harness.pausing_store.marked_unattended.wait(), WAIT_SECONDS)
    harness.gate.interop.release.set()

    assert (await harness.gate.callback_receiver.wait_for_callback("hung-up")).data["answered_inline"] is False


async def test_a_client_that_disconnected_before_the_response_gets_a_callback_after_the_grace(
    harness: DetachedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attended_calls, "RESULT_BYTES_MAX", -1)  # the result is read from the store, which can pause
    harness.pausing_store.ended.clear()
    harness.pausing_store.marked_unattended.clear()
    harness.pausing_store.may_continue.clear()
    waiting = harness.start_call("count", "in-between")
    await asyncio.wait_for(harness.pausing_store.ended.wait(), WAIT_SECONDS)
    await close_request(waiting)
    await asyncio.wait_for(harness.pausing_store.marked_unattended.wait(), WAIT_SECONDS)
    harness.pausing_store.may_continue.set()

    before = await harness.read_delivery("in-between")
    harness.clock.advance(INLINE_GRACE_SECONDS)
    received = await harness.gate.callback_receiver.wait_for_callback("in-between")

    assert before is not None
    assert (before["state"], before["attempt_count"]) == ("pending", 0)
    assert received.data["answered_inline"] is False
