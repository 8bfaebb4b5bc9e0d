"""A client that gives its callback with every call registers it once, in whatever way it gives it."""

from pathlib import Path
from typing import Final

import pytest

from ringback.signing.secrets import generate_secret
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.application import SECRET, serving_callbacks
from tests.support.mcp_wire import Json, ModernClient

UPSTREAMS: Final = ("paint",)


async def call_with_callback(client: ModernClient, session_id: str, url: str) -> Json:
    headers = {
        "Ringback-Callback-Url": url,
        "Ringback-Callback-Secret": SECRET,
        "Ringback-Client-Session-Id": session_id,
    }
    params: Json = {"name": "count", "arguments": {}}
    return await client.request("tools/call", params, declare=NO_CAPABILITIES, headers=headers)


async def list_webhooks(gate: GatewayHarness, session_id: str) -> list[Json]:
    listed = (await gate.request_rest("GET", "/v1/webhooks?limit=100")).json()["webhooks"]
    return [webhook for webhook in listed if webhook["client_session_id"] == session_id]


@pytest.mark.requirement("R16")
async def test_headers_meta_and_url_give_the_same_callback_of_a_session(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    url = gate.callback_receiver.url
    by_url = ModernClient(gate.http, f"{modern.url}?client_session_id=same&callback_url={url}", modern.key)
    meta: Json = {"ringback/clientSessionId": "same", "ringback/callback": {"url": url, "secret": SECRET}}
    await call_with_callback(modern, "same", url)
    await modern.request("tools/call", {"name": "count", "arguments": {}, "_meta": meta}, declare=NO_CAPABILITIES)
    await by_url.request("tools/call", {"name": "count", "arguments": {}}, declare=NO_CAPABILITIES)

    (webhook,) = await list_webhooks(gate, "same")
    calls = await gate.list_calls("same")
    deliveries = (await gate.request_rest("GET", f"/v1/deliveries?webhook_id={webhook['id']}")).json()["deliveries"]
    assert len(calls) == len(deliveries) == 3
    assert {each["call_id"] for each in deliveries} == {each["id"] for each in calls}


@pytest.mark.requirement("R26")
async def test_the_callbacks_of_a_url_that_is_not_verified_are_held(tmp_path: Path) -> None:
    async with (
        serving_callbacks(generate_secret(b"o" * 32)) as deaf,
        running_gateway(tmp_path, only={"paint"}, verify_callbacks="always") as gate,
    ):
        client = await gate.make_modern_client()
        for _ in range(2):
            await call_with_callback(client, "unproven", deaf.url)

        (webhook,) = await list_webhooks(gate, "unproven")
        deliveries = (await gate.request_rest("GET", "/v1/deliveries")).json()["deliveries"]
        assert webhook["state"] == "pending_verification"
        assert [each["state"] for each in deliveries] == ["held", "held"]
        assert deaf.callbacks == []


async def test_rest_ignores_the_headers(gate: GatewayHarness) -> None:
    body: Json = {"upstream": "paint", "tool": "count", "wait_seconds": 30.0}
    headers = {
        "authorization": f"Bearer {await gate.get_api_key('alice')}",
        "Ringback-Client-Session-Id": "ignored",
        "Ringback-Callback-Url": "https://10.0.0.1/ignored",
    }
    answer = await gate.http.post(f"{gate.url}/v1/calls", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["call"]["client_session_id"] is None
