"""Floods of subscriptions, of refreshes and of foreign keys: quotas count before any work, and nothing is left behind."""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Final

import pytest

from ringback.domain.rate_limiter import RateLimit
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
from ringback.services.limits import schema_checks
from tests.interaction.gateway_events_hostile.conftest import (
    CALLBACK_ENDPOINT_ERROR,
    FINISHED,
    INVALID_PARAMS,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    EventsGate,
    accept_everything,
    events_of,
    make_subscription,
    running_events_gate,
)
from tests.support.mcp_wire import Json
from tests.support.receivers import Receiver, respond_with, response, serving_receiver

SUBSCRIPTIONS_MAX: Final = 5
SUBSCRIBERS_AT_ONCE: Final = 20
REFRESHES: Final = 60
REFRESHES_DEEP: Final = 10_000
SECRETS: Final = tuple(f"whsec_{letter * 43}=" for letter in "ABCDEFGH")
FLOOD: Final = 40
"""More new URLs of one origin than one minute's challenges."""


@pytest.fixture(scope="module")
async def small_gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EventsGate]:
    async with running_events_gate(module_path_factory.mktemp("small"), quota_subscriptions=SUBSCRIPTIONS_MAX) as gate:
        yield gate


async def test_subscriptions_beyond_the_quota_are_refused_before_the_receiver_gets_a_challenge(
    small_gate: EventsGate, receiver: Receiver
) -> None:
    answers = [
        await small_gate.send("events/subscribe", make_subscription(receiver.url(), arguments={"call_id": f"call_{n}"}))
        for n in range(SUBSCRIPTIONS_MAX)
    ]
    challenges = len(receiver.requests)
    rows = small_gate.count_rows()

    refused = await asyncio.gather(
        *(
            small_gate.send("events/subscribe", make_subscription(receiver.url(f"/{n}")))
            for n in range(SUBSCRIBERS_AT_ONCE)
        )
    )

    assert all("result" in answer for answer in answers)
    assert challenges == 1, "one proof serves all subscriptions of one principal to one URL"
    assert {answer["error"]["code"] for answer in refused} == {RESOURCE_EXHAUSTED}
    assert all(answer["error"]["data"]["max"] == SUBSCRIPTIONS_MAX for answer in refused)
    assert all(answer["error"]["data"]["limit"] for answer in refused)
    assert len(receiver.requests) == challenges
    assert small_gate.count_rows() == rows


async def test_the_quota_of_one_principal_leaves_others_alone_and_an_unsubscribe_frees_a_place(
    small_gate: EventsGate, receiver: Receiver
) -> None:
    async def subscribe(number: int, principal: str) -> Json:
        params = make_subscription(receiver.url(), arguments={"call_id": f"call_{number}"})
        return await small_gate.send("events/subscribe", params, principal=principal)

    first = [await subscribe(number, "quentin") for number in range(SUBSCRIPTIONS_MAX + 1)]
    other = await subscribe(0, "rosa")
    key = {"name": FINISHED, "arguments": {"call_id": "call_0"}, "delivery": {"url": receiver.url()}}
    ended = await small_gate.send("events/unsubscribe", key, principal="quentin")
    again = await subscribe(SUBSCRIPTIONS_MAX, "quentin")

    assert [("result" in answer) for answer in first] == [True] * SUBSCRIPTIONS_MAX + [False]
    assert "result" in other
    assert "result" in ended
    assert "result" in again


async def test_new_urls_of_one_origin_are_challenged_at_a_limited_rate_and_refused_ones_leave_nothing(
    gate: EventsGate, receiver: Receiver
) -> None:
    """Each subscribe of the AI SDK has a new URL, so that some tens per minute must pass."""
    before = gate.count_rows()

    answers = [
        await gate.send("events/subscribe", make_subscription(receiver.url(f"/hook?n={n}")), principal="flora")
        for n in range(FLOOD)
    ]

    granted = [answer for answer in answers if "result" in answer]
    refused = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert len(granted) >= 5
    assert set(refused) <= {RESOURCE_EXHAUSTED}
    assert len(receiver.requests) == len(granted)
    assert gate.count_rows()["webhooks"] == before["webhooks"] + len(granted)
    assert gate.count_rows()["challenges"] == before["challenges"]


async def test_a_receiver_that_never_proves_itself_gets_few_challenges_however_many_urls_it_has(
    gate: EventsGate,
) -> None:
    before = gate.count_rows()
    async with serving_receiver(respond_with(response("404 Not Found"))) as unwilling:
        answers = [
            await gate.send("events/subscribe", make_subscription(unwilling.url(f"/{n}")), principal="nagger")
            for n in range(FLOOD)
        ]
        other = await gate.send("events/subscribe", make_subscription(unwilling.url("/other")), principal="bystander")

    codes = [answer["error"]["code"] for answer in answers]
    challenges = [request for request in unwilling.requests if request.method == "POST"]
    assert set(codes) == {CALLBACK_ENDPOINT_ERROR, RESOURCE_EXHAUSTED}
    assert len(challenges) <= CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX + 1  # the bystander has one of its own
    assert other["error"]["code"] == CALLBACK_ENDPOINT_ERROR
    assert {table: count for table, count in gate.count_rows().items() if count != before[table]} == {}


async def test_a_storm_of_refreshes_keeps_one_subscription_one_challenge_and_few_secrets(
    gate: EventsGate, receiver: Receiver, *, deep: bool
) -> None:
    chance = random.Random(15)
    url = receiver.url("/storm")
    before = gate.count_rows()
    ids: set[str] = set()
    for number in range(REFRESHES_DEEP if deep else REFRESHES):
        params = make_subscription(url, secret=SECRETS[number % 2], ttlMs=chance.choice([1, 60_000, 10**12, None]))
        answer = await gate.send("events/subscribe", params, principal="sturm")
        ids.add(answer["result"]["id"])
    together = await asyncio.gather(
        *(gate.send("events/subscribe", make_subscription(url), principal="sturm") for _ in range(SUBSCRIBERS_AT_ONCE))
    )
    await gate.end_call("sturm")
    await receiver.wait_for_requests(2)

    assert ids | {answer["result"]["id"] for answer in together} == ids
    assert len(ids) == 1
    assert gate.count_rows()["webhooks"] == before["webhooks"] + 1
    assert len(events_of(receiver)) == 1
    assert len(receiver.requests) == 2, "one challenge and one event"
    signatures = receiver.requests[-1].headers["webhook-signature"].split(" ")
    assert 1 <= len(signatures) <= 10


async def test_many_secrets_in_turn_are_refused_or_forgotten_and_the_newest_signs(
    gate: EventsGate, receiver: Receiver
) -> None:
    """A client that makes a new secret for each refresh must not be locked out, and headers stay small."""
    url = receiver.url("/rotating")
    for number in range(3 * len(SECRETS)):
        params = make_subscription(url, secret=SECRETS[number % len(SECRETS)])
        assert "result" in await gate.send("events/subscribe", params, principal="rota"), number
    await gate.end_call("rota")
    await receiver.wait_for_requests(2)

    assert len(receiver.requests[-1].headers["webhook-signature"]) < 2_000


async def test_a_foreign_key_looks_like_one_that_never_was_and_ends_nothing(
    gate: EventsGate, receiver: Receiver
) -> None:
    url = receiver.url("/mine")
    await gate.send("events/subscribe", make_subscription(url, arguments={"call_id": "call_1"}), principal="owner")
    keys: list[Json] = [
        {"name": FINISHED, "arguments": arguments, "delivery": {"url": address}}
        for arguments in ({"call_id": "call_1"}, {"call_id": "call_2"}, {})
        for address in (url, receiver.url("/other"), f"{url}?", url.upper())
    ]

    foreign = [await gate.send("events/unsubscribe", key, principal="thief") for key in keys]
    own = [await gate.send("events/unsubscribe", key, principal="owner") for key in keys[1:]]
    live = await gate.send("events/unsubscribe", keys[0], principal="owner")
    again = await gate.send("events/unsubscribe", keys[0], principal="owner")

    assert {answer["error"]["code"] for answer in (*foreign, *own)} == {NOT_FOUND}
    assert all(answer["error"]["data"] == {"kind": "subscription"} for answer in foreign)
    assert len({str(answer["error"]) for answer in (*foreign, *own)}) == 1
    assert "result" in live
    assert "result" in again, "a key that once lived"


async def test_two_principals_with_one_url_have_subscriptions_of_their_own(gate: EventsGate) -> None:
    async with serving_receiver(accept_everything) as shared:
        url = shared.url("/shared")
        ids = [
            (await gate.send("events/subscribe", make_subscription(url), principal=principal))["result"]["id"]
            for principal in ("ada", "bob")
        ]
        call_id = await gate.end_call("ada")
        await shared.wait_for_requests(3)
        await gate.send("events/unsubscribe", make_subscription(url), principal="bob")
        second = await gate.end_call("ada")
        await shared.wait_for_requests(4)

    assert len(set(ids)) == 2
    assert [event["data"]["call_id"] for event in events_of(shared)] == [call_id, second]
    assert {request.headers["x-mcp-subscription-id"] for request in shared.requests[2:]} == {ids[0]}


@pytest.mark.parametrize("method", ["events/poll", "events/stream", "events/subscribe"])
async def test_requests_are_refused_while_the_arguments_of_earlier_ones_took_too_long_to_check(
    gate: EventsGate, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The schema of an upstream's event type may make a check of 16 KB last for 30 ms, in which nobody else is served."""
    before, checked, neighbour = gate.count_rows(), f"checked-{method}", f"neighbour-{method}"
    monkeypatch.setattr(schema_checks, "CHECK_RATE", RateLimit(per_second=0.001, burst=1))
    wrong = {**make_subscription(receiver.url("/checked")), "arguments": {"call_id": 7}}

    errors = [(await gate.send(method, wrong, principal=each))["error"] for each in (checked, checked, neighbour)]

    assert [error["code"] for error in errors] == [INVALID_PARAMS, RESOURCE_EXHAUSTED, INVALID_PARAMS]
    assert errors[1]["data"]["limit"] == "schema_checks"
    assert errors[1]["data"]["retryAfterMs"] > 0
    assert gate.count_rows() == before
    assert receiver.requests == []
