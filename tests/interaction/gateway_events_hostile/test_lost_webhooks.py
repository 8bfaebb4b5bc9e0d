"""What a webhook lost is in the log: a client polls from the cursor of the last body that it got. Ids outlive the process."""

import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interaction.gateway_events_hostile.conftest import (
    FINISHED,
    EventsGate,
    accept_everything,
    encode,
    events_of,
    make_subscription,
    read_response,
    running_events_gate,
)
from tests.support.mcp_wire import Json
from tests.support.receivers import AcceptedConnection, Behaviour, Receiver, response, serving_receiver

GONE = response("410 Gone")


def lose(is_lost: Callable[[int], bool]) -> Behaviour:
    """A receiver that answers challenges, and 410 to the events of these numbers, which ends their deliveries."""
    count = 0

    async def behave(connection: AcceptedConnection) -> None:
        nonlocal count
        while (request := await connection.request()) is not None:
            envelope = orjson.loads(request.body)
            if envelope.get("type") == "verification":
                body = orjson.dumps({"challenge": envelope["challenge"]})
                await connection.send(response("200 OK", body, content_type="application/json"))
                continue
            count += 1
            await connection.send(GONE if is_lost(count - 1) else response("204 No Content"))

    return behave


@pytest.mark.requirement("R20")
@pytest.mark.requirement("R27")
async def test_events_that_the_webhook_lost_are_polled_from_the_cursor_of_the_last_body(gate: EventsGate) -> None:
    async with serving_receiver(lose(lambda number: number in {1, 2})) as receiver:
        await gate.send("events/subscribe", make_subscription(receiver.url("/lossy")), principal="loser")
        call_ids: list[str] = []
        for number in range(4):
            call_ids.append(await gate.end_call("loser"))
            await receiver.wait_for_requests(number + 2)
        await gate.send("events/unsubscribe", make_subscription(receiver.url("/lossy")), principal="loser")

    posted = events_of(receiver)
    params: Json = {"name": FINISHED, "arguments": {}, "cursor": posted[0]["cursor"]}
    page = (await gate.send("events/poll", params, principal="loser"))["result"]

    polled = [event["eventId"] for event in page["events"]]
    assert page["truncated"] is False
    assert polled[-3:] == [event["eventId"] for event in posted[1:]]
    assert len(set(polled)) == len(polled)
    assert [event["data"]["call_id"] for event in page["events"]][-3:] == call_ids[1:]


@pytest.mark.requirement("R31")
async def test_a_subscription_keeps_its_id_its_proof_and_its_events_over_a_restart(tmp_path: Path) -> None:
    async with serving_receiver(accept_everything) as receiver:
        params = make_subscription(receiver.url("/hook?a=%2F&b"), arguments={"client_session_id": "s1", "tool": "echo"})
        async with running_events_gate(tmp_path) as gate:
            key = await gate.get_key("alice")
            first = (await gate.send("events/subscribe", params))["result"]
        async with running_events_gate(tmp_path) as gate:
            gate.keys["alice"] = key
            call_id = await gate.end_call(client_session_id="s1")
            await receiver.wait_for_requests(2)
            swapped = {**params, "arguments": {"tool": "echo", "client_session_id": "s1"}}
            second = (await gate.send("events/subscribe", swapped))["result"]
            await gate.end_call(client_session_id="s2")
            last = await gate.end_call(client_session_id="s1")
            await receiver.wait_for_requests(3)

    assert first["id"] == second["id"]
    assert second["refreshBefore"] >= first["refreshBefore"]
    assert [event["data"]["call_id"] for event in events_of(receiver)] == [call_id, last]
    assert len(receiver.requests) == 3, "one challenge for both processes"
    assert {request.headers["x-mcp-subscription-id"] for request in receiver.requests} == {first["id"]}
    assert {request.path for request in receiver.requests} == {"/hook?a=%2F&b"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
arguments_in_two_orders = st.dictionaries(
    st.sampled_from(["call_id", "client_session_id", "correlation_id", "upstream", "tool"]), texts, min_size=1
).flatmap(lambda values: st.tuples(st.just(values), st.permutations(list(values.items())).map(dict)))


@pytest.mark.requirement("R31")
@given(both=arguments_in_two_orders, escaped=st.booleans())
async def test_the_order_of_keys_and_the_spelling_of_characters_do_not_change_the_id(
    gate: EventsGate, receiver: Receiver, both: tuple[Json, Json], *, escaped: bool
) -> None:
    ids: set[str] = set()
    for arguments in both:
        params = make_subscription(receiver.url("/same"), arguments=arguments)
        body = encode("events/subscribe", params)
        if escaped:
            body = json.dumps(json.loads(body), ensure_ascii=False).encode()
        answer = read_response(await gate.post(body, method="events/subscribe", principal="same"))
        if "error" in answer:
            assert answer["error"]["code"] == -32602, "a value that the schema refuses is refused in each order"
        ids.add(answer["result"]["id"] if "result" in answer else "refused")

    assert len(ids) == 1
