"""Integers beyond 64 bits come back exactly through both eras of MCP, REST and callbacks: JSON allows them, orjson does not."""

import json
from typing import Any, Final

import pytest

from ringback.domain import jsontext
from tests.interaction.gateway.conftest import GatewayHarness
from tests.support.application import SECRET
from tests.support.mcp_wire import Json, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint",)

INTEGERS: Final = (2**64, -(2**70), 10**300 - 7)


@pytest.mark.parametrize("count", INTEGERS, ids=["65 bits", "-71 bits", "300 digits"])
async def test_both_eras_pass_long_integers_on(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession, count: int
) -> None:
    for client in (modern, session):
        counted = await client.request("tools/call", {"name": "count", "arguments": {"count": count}})
        assert (counted["structuredContent"], counted["content"][0]["text"]) == ({"count": count}, str(count))
        call_id = counted["_meta"]["ringback/callId"]
        shown = await client.request("tools/call", {"name": "ringback_get_call", "arguments": {"call_id": call_id}})
        assert jsontext.dumps({"count": count}).decode() in json.dumps(shown).replace('\\"', '"').replace(": ", ":")
        assert (await gate.request_rest("GET", f"/v1/calls/{call_id}/result")).json()["structuredContent"][
            "count"
        ] == count


@pytest.mark.parametrize("count", INTEGERS, ids=["65 bits", "-71 bits", "300 digits"])
async def test_rest_and_callbacks_pass_long_integers_on(gate: GatewayHarness, count: int) -> None:
    label = f"count-{len(str(count))}"

    async def start(value: int) -> Any:
        callback = {"url": gate.callback_receiver.url, "secret": SECRET, "include_result": True}
        called = {"upstream": "paint", "tool": "count", "arguments": {"count": value}}
        headers = {"authorization": f"Bearer {await gate.get_api_key('alice')}", "idempotency-key": label}
        body: Json = {**called, "correlation_id": label, "callback": callback}
        return await gate.http.post(f"{gate.url}/v1/calls", json=body, headers=headers)

    started = await start(count)
    assert started.status_code == 202, started.text
    ended = await gate.wait_until_ended(started.headers["location"].rpartition("/")[2])
    assert ended["status"] == "completed", ended
    assert (await start(count)).headers["idempotent-replayed"] == "true"
    assert (await start(count + 1)).status_code in {409, 422}
    callback = await gate.callback_receiver.wait_for_callback(label)
    assert callback.data["result"]["structuredContent"] == {"count": count}
