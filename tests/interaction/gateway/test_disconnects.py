"""What becomes of a call whose client goes away."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate, opened_gate
from tests.support.application import SECRET
from tests.support.engine import until
from tests.support.mcp_wire import TASKS_DECLARED, Json, Modern
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R13")

OURS: Final[Json] = {"ringback/correlationId": "mine"}


async def left(
    gate: Gate, client: Modern, session_id: str, *, declare: Json = NO_CAPABILITIES, meta: Json | None = None
) -> None:
    """Call `wait`, and hang up while it is held."""
    params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": session_id, **(meta or {})}}
    waiting = asyncio.create_task(client.result("tools/call", params, declare=declare))
    await gate.paint.until_held()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def end_of(gate: Gate, session_id: str) -> Json:
    (call,) = await gate.calls(session_id)
    return await gate.ended(call["id"])


async def test_closing_the_stream_of_today_cancels_the_call(gate: Gate, modern: Modern) -> None:
    await left(gate, modern, "closed")
    await asyncio.wait_for(gate.paint.let_go.wait(), WAIT_SECONDS)
    assert (await end_of(gate, "closed"))["status"] == "cancelled"


@pytest.mark.parametrize(("name", "declare", "meta"), [("tasks", TASKS_DECLARED, {}), ("ours", NO_CAPABILITIES, OURS)])
async def test_a_client_that_knows_that_calls_outlive_it_cancels_nothing_by_leaving(
    gate: Gate, modern: Modern, name: str, declare: Json, meta: Json
) -> None:
    await left(gate, modern, name, declare=declare, meta=meta)
    gate.paint.release.set()
    assert (await end_of(gate, name))["outcome"] == "result"


async def test_the_operator_can_have_calls_go_on_in_any_case(tmp_path: Path) -> None:
    async with opened_gate(tmp_path, disconnect="keep") as gate:
        await left(gate, await gate.modern(), "kept")
        gate.paint.release.set()
        assert (await end_of(gate, "kept"))["outcome"] == "result"


async def test_who_has_left_was_not_answered_inline(gate: Gate, modern: Modern) -> None:
    callback: Json = {"ringback/callback": {"url": gate.phone.url, "secret": SECRET}}
    await left(gate, modern, "left", meta={**callback, "ringback/correlationId": "left-1"})
    async with gate.session() as session:
        meta: Json = {**callback, "ringback/correlationId": "left-2", "client_session_id": "left-too"}
        async with session.asking("tools/call", {"name": "wait", "arguments": {}, "_meta": meta}):
            await gate.paint.until_held()
    await noticed(gate, "left")
    await noticed(gate, "left-too")
    gate.paint.release.set()
    for correlation_id in ("left-1", "left-2"):
        assert (await gate.phone.ring(correlation_id)).data["answered_inline"] is False


async def noticed(gate: Gate, session_id: str) -> None:
    (call,) = await gate.calls(session_id)

    async def nobody_stays() -> bool:
        stored = await gate.ringback.app.store.read(lambda tx: tx.calls.get(call["id"]))
        return stored is not None and stored.attended_until is None

    await until(nobody_stays)


async def test_a_cancelled_request_of_before_cancels_its_call(gate: Gate) -> None:
    async with gate.session() as session:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "esc"}}
        async with session.asking("tools/call", params):
            await gate.paint.until_held()
            await session.cancel(session.last_id)
            await asyncio.wait_for(gate.paint.let_go.wait(), WAIT_SECONDS)
    assert (await end_of(gate, "esc"))["status"] == "cancelled"


async def test_a_lost_connection_of_before_cancels_nothing(gate: Gate) -> None:
    async with gate.session() as session:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "lost"}}
        async with session.asking("tools/call", params):
            await gate.paint.until_held()
    gate.paint.release.set()
    assert (await end_of(gate, "lost"))["outcome"] == "result"


async def test_another_sessions_cancellation_cancels_nothing(gate: Gate) -> None:
    async with gate.session() as session, gate.session() as other:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "others"}}
        async with session.asking("tools/call", params) as frames:
            await gate.paint.until_held()
            await other.cancel(session.last_id)
            gate.paint.release.set()
            assert (await frames.answer())["content"][0]["text"] == "held"


async def test_once_a_pending_result_was_answered_only_cancelling_the_call_cancels_it(gate: Gate) -> None:
    async with gate.session() as session:
        async with session.asking("tools/call", {"name": "hold", "arguments": {}}) as frames:
            pending = await frames.answer()
        await session.cancel(session.last_id)
        call_id = pending["_meta"]["ringback/callId"]
        assert (await gate.rest("GET", f"/v1/calls/{call_id}")).json()["cancel_requested"] is False
        await gate.rest("POST", f"/v1/calls/{call_id}/cancel")
        assert (await gate.ended(call_id))["status"] == "cancelled"
