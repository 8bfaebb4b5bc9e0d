"""`when: detached`: nobody is rung about what the waiting client read, and everybody about what it did not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import httpx
import pytest

from ringback.bootstrap import Environment
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals
from ringback.domain.webhook import INLINE_GRACE_SECONDS
from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate, opened_gate
from tests.support.application import SECRET
from tests.support.clock import ShiftedClock
from tests.support.engine import until
from tests.support.mcp_wire import Json, Modern, Session
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R22")

T = TypeVar("T")
STAYS: Final = 30.0


@dataclass(slots=True)
class Watched:
    """Watches for the moment between the end of a call and its answer, and can hold it."""

    store: Store | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def around(self, store: Store) -> Store:
        self.store = store
        self.go_on.set()
        return self

    @property
    def exclusive(self) -> bool:
        assert self.store is not None
        return self.store.is_exclusive

    @property
    def signals(self) -> Signals:
        assert self.store is not None
        return self.store.signals

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        if work.__qualname__.startswith("Calls.wait.<locals>"):
            self.ended.set()
            await self.go_on.wait()
        return await self.store.read(work)

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        return await self.store.scan(principal, work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        assert self.store is not None
        value = await self.store.write(work)
        if work.__qualname__.startswith("Calls.leave.<locals>"):
            self.left.set()
        return value


@dataclass(frozen=True, slots=True)
class Place:
    gate: Gate
    clock: ShiftedClock
    watched: Watched

    def callback(self, when: str = "detached") -> Json:
        return {"url": self.gate.phone.url, "secret": SECRET, "when": when}

    def start(self, tool: str, name: str, *, wait_seconds: float = STAYS) -> asyncio.Task[httpx.Response]:
        body: Json = {
            "upstream": "paint",
            "tool": tool,
            "wait_seconds": wait_seconds,
            "correlation_id": name,
            "client_session_id": name,
            "callback": self.callback(),
        }
        return asyncio.create_task(self.gate.rest("POST", "/v1/calls", json=body))

    async def delivery(self, name: str) -> Json | None:
        (call,) = await self.gate.calls(name)
        listed = (await self.gate.rest("GET", f"/v1/deliveries?call_id={call['id']}")).json()["deliveries"]
        return listed[0] if listed else None

    async def until_cancelled(self, name: str) -> Json:
        async def cancelled() -> bool:
            delivery = await self.delivery(name)
            return delivery is not None and delivery["state"] == "cancelled"

        await until(cancelled)
        delivery = await self.delivery(name)
        assert delivery is not None
        return delivery


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    clock, watched = ShiftedClock(), Watched()
    world = Environment(clock=clock, wrap_store=watched.around)
    async with opened_gate(tmp_path_factory.mktemp("gate"), world=world) as gate:
        yield Place(gate, clock, watched)


async def hang_up(waiting: asyncio.Task[Any]) -> None:
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("door", ["rest", "modern", "before"])
async def test_nobody_is_rung_about_an_answer_that_was_read(
    place: Place, door: Literal["rest", "modern", "before"]
) -> None:
    if door == "rest":
        assert (await place.start("count", door)).status_code == 200
    elif door == "modern":
        await called(await place.gate.modern(), "count", door, place.callback())
    else:
        async with place.gate.session() as session:
            await called(session, "count", door, place.callback())

    delivery = await place.until_cancelled(door)

    assert delivery["attempt_count"] == 0
    place.clock.advance(2 * INLINE_GRACE_SECONDS)
    assert not [rung for rung in place.gate.phone.callbacks if rung.correlation_id == door]


async def called(client: Modern | Session, tool: str, name: str, callback: Json) -> Json:
    meta = {"ringback/callback": callback, "ringback/correlationId": name, "ringback/clientSessionId": name}
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, Modern) else {}
    return await client.result("tools/call", {"name": tool, "arguments": {}, "_meta": meta}, **declare)


async def test_a_client_that_did_not_wait_is_rung_at_once(place: Place) -> None:
    await place.start("count", "did-not-wait", wait_seconds=0.0)
    assert (await place.gate.phone.ring("did-not-wait")).data["answered_inline"] is False


async def test_a_client_that_hung_up_before_the_end_is_rung_at_once(place: Place) -> None:
    place.gate.paint.reset()
    place.watched.left.clear()
    waiting = place.start("wait", "hung-up")
    await place.gate.paint.until_held()
    await hang_up(waiting)
    await asyncio.wait_for(place.watched.left.wait(), WAIT_SECONDS)
    place.gate.paint.release.set()

    assert (await place.gate.phone.ring("hung-up")).data["answered_inline"] is False


async def test_a_client_that_hung_up_between_end_and_answer_is_rung_after_the_grace(place: Place) -> None:
    place.watched.ended.clear()
    place.watched.left.clear()
    place.watched.go_on.clear()
    waiting = place.start("count", "in-between")
    await asyncio.wait_for(place.watched.ended.wait(), WAIT_SECONDS)
    await hang_up(waiting)
    await asyncio.wait_for(place.watched.left.wait(), WAIT_SECONDS)
    place.watched.go_on.set()

    before = await place.delivery("in-between")
    place.clock.advance(INLINE_GRACE_SECONDS)
    rung = await place.gate.phone.ring("in-between")

    assert before is not None
    assert (before["state"], before["attempt_count"]) == ("pending", 0)
    assert rung.data["answered_inline"] is False
