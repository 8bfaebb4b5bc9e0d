"""Clients that cannot set `_meta` label their calls and get callbacks by a header or by the URL."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal
from urllib.parse import urlencode

import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.application import SECRET
from tests.support.mcp_wire import ACCEPT, LEGACY, Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint",)

Era = Literal["modern", "legacy"]
pytestmark = pytest.mark.parametrize("era", ["modern", "legacy"])


class Client:
    """A client of either era whose user can set headers and the URL, and nothing else."""

    def __init__(self, client: ModernClient | LegacyClientSession, headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = headers

    async def call(self, tool: str, meta: Json | None = None, *, arguments: Json | None = None) -> Json:
        params: Json = {"name": tool, "arguments": arguments or {}, "_meta": meta or {}}
        if isinstance(self._client, LegacyClientSession):
            return await self._client.request("tools/call", params)
        return await self._client.request("tools/call", params, declare=NO_CAPABILITIES, headers=self._headers)


@asynccontextmanager
async def opened(
    gate: GatewayHarness,
    era: Era,
    *,
    headers: Mapping[str, str] | None = None,
    query: str = "",
    key: str | None = None,
) -> AsyncGenerator[Client]:
    key = key or await gate.get_api_key("alice")
    url = f"{gate.url}/mcp/paint{'?' if query else ''}{query}"
    headers = dict(headers or {})
    if era == "modern":
        yield Client(ModernClient(gate.http, url, key), headers)
        return
    async with gate.open_legacy_session() as session:
        session.url = url
        session.headers |= headers | {"authorization": f"Bearer {key}"}
        yield Client(session, headers)


async def read_call(gate: GatewayHarness, result: Json) -> Json:
    call: Json = (await gate.request_rest("GET", f"/v1/calls/{result['_meta']['ringback/callId']}")).json()
    return call


async def list_webhooks(gate: GatewayHarness, session_id: str) -> list[Json]:
    listed = (await gate.request_rest("GET", "/v1/webhooks?limit=100")).json()["webhooks"]
    return [webhook for webhook in listed if webhook["client_session_id"] == session_id]


async def count_webhooks(gate: GatewayHarness) -> int:
    return len((await gate.request_rest("GET", "/v1/webhooks?limit=100")).json()["webhooks"])


@pytest.mark.requirement("R19")
async def test_headers_label_a_call(gate: GatewayHarness, era: Era) -> None:
    headers = {"Ringback-Client-Session-Id": f"header-{era}", "Ringback-Correlation-Id": "c-1"}
    async with opened(gate, era, headers=headers) as client:
        result = await client.call("count")

    call = await read_call(gate, result)
    assert (call["client_session_id"], call["correlation_id"]) == (f"header-{era}", "c-1")
    assert result["_meta"]["ringback/clientSessionId"] == f"header-{era}"


@pytest.mark.requirement("R19")
async def test_the_url_labels_a_call(gate: GatewayHarness, era: Era) -> None:
    async with opened(gate, era, query=f"client_session_id=url-{era}&correlation_id=c%202&wait=20") as client:
        call = await read_call(gate, await client.call("count"))

    assert (call["client_session_id"], call["correlation_id"]) == (f"url-{era}", "c 2")


@pytest.mark.parametrize(
    ("meta", "headers", "query", "expected"),
    [
        ({"ringback/clientSessionId": "meta"}, "header", "query", "meta"),
        ({"client_session_id": "meta"}, "header", "query", "meta"),
        ({}, "header", "query", "header"),
        ({}, None, "query", "query"),
        ({"openai/session": "host"}, None, "query", "query"),
        ({"openai/session": "host"}, None, None, "host"),
    ],
)
async def test_meta_precedes_the_header_and_the_header_the_url(
    gate: GatewayHarness, era: Era, meta: Json, headers: str | None, query: str | None, expected: str
) -> None:
    sent = {"Ringback-Client-Session-Id": headers} if headers else {}
    async with opened(gate, era, headers=sent, query=f"client_session_id={query}" if query else "") as client:
        call = await read_call(gate, await client.call("count", meta))

    assert call["client_session_id"] == expected


@pytest.mark.parametrize(
    ("meta", "headers", "query", "expected"),
    [
        ({"traceparent": "00-meta"}, {"traceparent": "00-header"}, "", "00-meta"),
        ({}, {"traceparent": "00-header"}, "", "00-header"),
        ({"traceparent": "00-meta"}, {"Ringback-Correlation-Id": "mine"}, "", "mine"),
        ({}, {"traceparent": "00-header"}, "correlation_id=mine", "mine"),
        ({"ringback/correlationId": "meta"}, {"Ringback-Correlation-Id": "mine"}, "", "meta"),
    ],
)
async def test_a_trace_is_the_correlation_id_only_if_the_client_sets_none(
    gate: GatewayHarness, era: Era, meta: Json, headers: Mapping[str, str], query: str, expected: str
) -> None:
    async with opened(gate, era, headers=headers, query=query) as client:
        call = await read_call(gate, await client.call("count", meta))

    assert call["correlation_id"] == expected


async def test_the_same_idempotency_key_in_a_header_is_the_same_call(gate: GatewayHarness, era: Era) -> None:
    async with opened(gate, era, headers={"Ringback-Idempotency-Key": f"once-{era}"}) as client:
        first, second = await client.call("count"), await client.call("count")

    assert first["_meta"]["ringback/callId"] == second["_meta"]["ringback/callId"]
    assert len(gate.interop.seen_meta) == 1


# -- callbacks -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R16")
async def test_a_callback_in_headers_arrives_signed_with_the_given_secret(gate: GatewayHarness, era: Era) -> None:
    headers = {
        "Ringback-Callback-Url": gate.callback_receiver.url,
        "Ringback-Callback-Secret": SECRET,
        "Ringback-Correlation-Id": f"by-header-{era}",
        "Ringback-Client-Session-Id": f"by-header-{era}",
    }
    async with opened(gate, era, headers=headers) as client:
        await client.call("count")
        received = await gate.callback_receiver.wait_for_callback(f"by-header-{era}")
        await client.call("count")

    assert received.data["client_session_id"] == f"by-header-{era}"
    (webhook,) = await list_webhooks(gate, f"by-header-{era}")
    assert (webhook["origin"], webhook["state"], webhook["call_id"]) == ("call", "active", None)


@pytest.mark.requirement("R16")
async def test_a_callback_url_in_the_url_arrives_once_its_generated_secret_is_rotated(
    gate: GatewayHarness, era: Era
) -> None:
    session_id = f"by-url-{era}"
    query = urlencode({"callback_url": gate.callback_receiver.url, "client_session_id": session_id})
    async with opened(gate, era, query=query) as client:
        await client.call("count")
        (webhook,) = await list_webhooks(gate, session_id)
        rotated = await gate.request_rest(
            "POST", f"/v1/webhooks/{webhook['id']}/rotate-secret", json={"secret": SECRET, "overlap_seconds": 0}
        )
        assert rotated.status_code == 200, rotated.text
        await client.call("count", {"ringback/correlationId": session_id})
        await gate.callback_receiver.wait_for_callback(session_id)

    assert [each["id"] for each in await list_webhooks(gate, session_id)] == [webhook["id"]]


async def test_a_secret_in_a_header_signs_the_callback_of_the_url(gate: GatewayHarness, era: Era) -> None:
    query = urlencode({"callback_url": gate.callback_receiver.url, "correlation_id": f"mixed-{era}"})
    async with opened(gate, era, headers={"Ringback-Callback-Secret": SECRET}, query=query) as client:
        await client.call("count")
        await gate.callback_receiver.wait_for_callback(f"mixed-{era}")


@pytest.mark.parametrize("webhook", [False, True])
async def test_a_secret_without_a_callback_is_refused(gate: GatewayHarness, era: Era, *, webhook: bool) -> None:
    registered = await gate.request_rest("POST", "/v1/webhooks", json={"url": gate.callback_receiver.url})
    query = f"webhook={registered.json()['id']}" if webhook else ""
    async with opened(gate, era, headers={"Ringback-Callback-Secret": SECRET}, query=query) as client:
        with pytest.raises(JsonRpcErrorResponse, match="sent without a callback") as refused:
            await client.call("count")

    assert refused.value.code == -32602
    assert gate.interop.seen_meta == []


async def test_the_callback_in_meta_precedes_the_one_in_headers(gate: GatewayHarness, era: Era) -> None:
    headers = {"Ringback-Callback-Url": "https://10.0.0.1/refused", "Ringback-Correlation-Id": f"meta-{era}"}
    async with opened(gate, era, headers=headers) as client:
        await client.call("count", {"ringback/callback": {"url": gate.callback_receiver.url, "secret": SECRET}})
        await gate.callback_receiver.wait_for_callback(f"meta-{era}")


@pytest.mark.requirement("R16")
async def test_a_webhook_that_the_url_names_receives_the_call(gate: GatewayHarness, era: Era) -> None:
    registered = await gate.request_rest(
        "POST",
        "/v1/webhooks",
        json={"url": gate.callback_receiver.url, "secret": SECRET, "client_session_id": "of-no-call"},
    )
    webhook_id = registered.json()["id"]
    async with opened(gate, era, query=f"webhook={webhook_id}&correlation_id=named-{era}") as client:
        await client.call("count")
        received = await gate.callback_receiver.wait_for_callback(f"named-{era}")

    assert received.subscription_id == webhook_id


@pytest.mark.parametrize("where", ["header", "query"])
@pytest.mark.parametrize("url", ["http://example.com/x", "https://10.0.0.1/x", "not a url", "https://[::1]/x"])
async def test_a_callback_url_is_checked_as_in_meta(gate: GatewayHarness, era: Era, where: str, url: str) -> None:
    before = await count_webhooks(gate)
    headers = {"Ringback-Callback-Url": url} if where == "header" else {}
    query = urlencode({"callback_url": url}) if where == "query" else ""
    async with opened(gate, era, headers=headers, query=query) as client:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await client.call("count")

    assert refused.value.code == -32602
    assert await count_webhooks(gate) == before
    assert gate.interop.seen_meta == []


@pytest.mark.requirement("R25")
async def test_a_foreign_webhook_is_refused_like_an_unknown_one(gate: GatewayHarness, era: Era) -> None:
    foreign = await gate.request_rest("POST", "/v1/webhooks", principal="bob", json={"url": gate.callback_receiver.url})
    refusals: list[JsonRpcErrorResponse] = []
    for webhook_id in (foreign.json()["id"], "wh_01JZZZZZZZZZZZZZZZZZZZZZZZ"):
        async with opened(gate, era, query=f"webhook={webhook_id}") as client:
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await client.call("count")
            refusals.append(refused.value)

    one, other = refusals
    assert (one.code, one.message, one.data) == (other.code, other.message, other.data)
    assert "no webhook of yours" in one.message
    assert gate.interop.seen_meta == []


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("where", ["header", "callback_url", "webhook"])
async def test_a_key_without_the_scope_of_webhooks_gets_no_callback(gate: GatewayHarness, era: Era, where: str) -> None:
    webhook = await gate.request_rest("POST", "/v1/webhooks", json={"url": gate.callback_receiver.url})
    _, key = await gate.ringback.app.services.api_keys.create_key(
        "alice", name="narrow", scopes=DEFAULT_SCOPES - {Scope.WEBHOOKS}, upstreams=None
    )
    values = {"callback_url": gate.callback_receiver.url, "webhook": webhook.json()["id"]}
    headers = {"Ringback-Callback-Url": gate.callback_receiver.url} if where == "header" else {}
    query = "" if where == "header" else urlencode({where: values[where]})
    async with opened(gate, era, headers=headers, query=query, key=key) as client:
        with pytest.raises(JsonRpcErrorResponse, match="webhooks"):
            await client.call("count")

    assert gate.interop.seen_meta == []


# -- nothing leaks ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R25")
async def test_options_are_not_forwarded_and_neither_stored_with_the_call_nor_logged_but_for_its_labels(
    gate: GatewayHarness, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hidden_secret = "whsec_" + "QUJD" * 8
    headers = {
        "Ringback-Callback-Url": f"{gate.callback_receiver.url}?hidden-in-header",
        "Ringback-Callback-Secret": hidden_secret,
        "Ringback-Client-Session-Id": f"hidden-session-{era}",
    }
    query = urlencode({"correlation_id": "hidden-correlation", "callback_url": "https://hidden-in-query.example/"})
    async with opened(gate, era, headers=headers, query=query) as client:
        result = await client.call("count")

    call_id = result["_meta"]["ringback/callId"]
    stored = await gate.ringback.app.store.read(lambda tx: tx.calls.get(call_id))
    assert stored is not None
    (seen_meta,), (seen_request,) = gate.interop.seen_meta, gate.interop.seen_requests
    for where in (str(stored.meta), str(seen_meta), str(seen_request)):
        assert "hidden" not in where
        assert "ringback-" not in where.lower()
        assert hidden_secret not in where
    ours = "\n".join(
        logging.Formatter().format(record) + str(record.__dict__)
        for record in caplog.records
        if record.name.startswith("ringback")
    )
    # The callback of the test with the other era is sent again meanwhile: its receiver refuses the address with a query.
    for label in ("hidden-session-modern", "hidden-session-legacy", "hidden-correlation"):
        ours = ours.replace(label, "")
    assert "hidden" not in ours
    assert hidden_secret not in ours


@pytest.mark.parametrize(
    ("query", "about"),
    [
        ("callback_secret=whsec_hidden", "A secret must not be in a URL"),
        ("clientSessionId=x", "Write client_session_id"),
        ("correlation_id=", "1 to 256 printable"),
        ("webhook=a&webhook=b", "more than once"),
        ("client_sesion_id=x", "Write client_session_id"),
    ],
)
async def test_a_wrong_url_is_refused_at_the_handshake(gate: GatewayHarness, era: Era, query: str, about: str) -> None:
    key = await gate.get_api_key("alice")
    url = f"{gate.url}/mcp/paint?{query}"
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await handshake(gate, era, url, key)

    assert refused.value.code == -32602
    assert about in refused.value.message
    assert "hidden" not in refused.value.message


async def handshake(gate: GatewayHarness, era: Era, url: str, key: str) -> None:
    if era == "modern":
        await ModernClient(gate.http, url, key).request("server/discover", {})
        return
    session = LegacyClientSession(gate.http, url, {**ACCEPT, "authorization": f"Bearer {key}"}, {})
    greeting = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await session.request("initialize", greeting)


@pytest.mark.requirement("R16")
async def test_a_model_registers_a_callback_with_a_tool(gate: GatewayHarness, era: Era) -> None:
    async with opened(gate, era) as client:
        arguments: Json = {"url": gate.callback_receiver.url, "client_session_id": f"model-{era}"}
        registered = await client.call("ringback_notify_me", arguments=arguments)
        webhook_id = registered["structuredContent"]["webhook_id"]
        rotated = await gate.request_rest(
            "POST", f"/v1/webhooks/{webhook_id}/rotate-secret", json={"secret": SECRET, "overlap_seconds": 0}
        )
        assert rotated.status_code == 200, rotated.text
        await gate.request_rest("POST", f"/v1/webhooks/{webhook_id}/verify")
        labels: Json = {"ringback/clientSessionId": f"model-{era}", "ringback/correlationId": f"model-{era}"}
        await client.call("count", labels)
        received = await gate.callback_receiver.wait_for_callback(f"model-{era}")

    assert received.subscription_id == webhook_id
