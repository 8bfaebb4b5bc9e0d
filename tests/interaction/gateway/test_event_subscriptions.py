"""events/subscribe and events/unsubscribe over a real gateway, and the three delivery modes beside each other."""

from typing import Any, Final

import pytest

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import NOTHING_DECLARED, SEP_DECLARED, call_echo, poll
from tests.interaction.gateway.test_event_streams import ACTIVE, ERAS, EVENT, open_client, open_stream
from tests.support.application import SECRET
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint", "plain")

NAME: Final = "call.finished"


async def send(client: ModernClient | LegacyClientSession, method: str, params: Json) -> Json:
    if isinstance(client, LegacyClientSession):
        return await client.request(method, params)
    return await client.request(method, params, declare=NOTHING_DECLARED)


async def subscribe(client: ModernClient | LegacyClientSession, url: str, **params: Any) -> Json:
    delivery: Json = {"mode": "webhook", "url": url, "secret": SECRET}
    return await send(client, "events/subscribe", {"name": NAME, "arguments": {}, "delivery": delivery, **params})


async def unsubscribe(client: ModernClient | LegacyClientSession, url: str, **params: Any) -> Json:
    wanted: Json = {"name": NAME, "arguments": {}, "delivery": {"url": url}, **params}
    return await send(client, "events/unsubscribe", wanted)


@ERAS
async def test_a_webhook_a_poll_and_a_stream_have_the_same_events_in_the_same_order(
    gate: GatewayHarness, era: str
) -> None:
    principal, receiver = f"three-modes-{era}", gate.callback_receiver
    caller = await gate.make_modern_client("plain", principal=principal)
    arguments: Json = {"client_session_id": principal}
    url = f"{receiver.url}?mode={era}"
    async with open_client(gate, era, principal) as client, open_client(gate, era, principal) as streaming:
        granted = await subscribe(client, url, arguments=arguments)
        start = await send(client, "events/poll", {"name": NAME, "arguments": arguments})
        async with open_stream(streaming, arguments=arguments) as frames:
            await frames.read_message(ACTIVE)
            for number in range(3):
                await call_echo(caller, clientSessionId="another", correlationId=f"other-{number}")
                await call_echo(caller, clientSessionId=principal, correlationId=f"{principal}-{number}")
                await receiver.wait_for_callback(f"{principal}-{number}")
            streamed = [(await frames.read_message(EVENT))["params"]["eventId"] for _ in range(3)]
        page = await send(client, "events/poll", {"name": NAME, "arguments": arguments, "cursor": start["cursor"]})
        assert await unsubscribe(client, url, arguments=arguments) is not None

    polled = [each["eventId"] for each in page["events"]]
    called_back = [each.event_id for each in receiver.callbacks if each.subscription_id == granted["id"]]
    assert streamed == polled == called_back


async def test_a_lost_callback_is_found_by_polling_from_the_cursor_of_the_last_body(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="losing")
    await subscribe(client, f"{gate.callback_receiver.url}?losing")
    await call_echo(client, correlationId="losing-first")
    body = await gate.callback_receiver.wait_for_callback("losing-first")
    await unsubscribe(client, f"{gate.callback_receiver.url}?losing")

    lost = await call_echo(client, correlationId="losing-second")

    page = await poll(client, cursor=body.cursor)
    assert page["events"][-1]["data"]["call_id"] == lost
    assert page["truncated"] is False


async def test_a_subscription_at_the_endpoint_of_an_upstream_is_that_of_all_upstreams_with_the_argument(
    gate: GatewayHarness,
) -> None:
    url = f"{gate.callback_receiver.url}?endpoints"
    own = await subscribe(await gate.make_modern_client("plain", principal="two-endpoints"), url)
    joined = await gate.make_modern_client(None, principal="two-endpoints")

    assert (await subscribe(joined, url, arguments={"upstream": "plain"}))["id"] == own["id"]
    assert (await subscribe(joined, url))["id"] != own["id"]


@pytest.mark.parametrize(("declared", "code"), [(NOTHING_DECLARED, -32011), (SEP_DECLARED, -32023)])
async def test_unsubscribing_what_never_was_is_not_found_in_the_codes_of_the_client(
    modern: ModernClient, declared: Json, code: int
) -> None:
    wanted: Json = {"name": NAME, "arguments": {}, "delivery": {"url": "https://agent.example/never"}}

    with pytest.raises(JsonRpcErrorResponse) as refused:
        await modern.request("events/unsubscribe", wanted, declare=declared)

    assert (refused.value.code, refused.value.data) == (code, {"kind": "subscription"})
    assert refused.value.message.startswith("NotFound: ")
