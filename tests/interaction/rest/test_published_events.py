"""Clients publish events of their own, which reach the log and the webhooks that subscribe to their names."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from ringback.domain import jsontext
from ringback.domain.errors import InvalidRequest
from ringback.domain.json_size import estimate_decoded_bytes
from ringback.domain.principal import Caller, Scope
from ringback.domain.rate_limiter import RateLimit
from ringback.services.events import event_types
from ringback.services.events.event_publishing import DATA_BYTES_MAX, PublishedEvent
from ringback.services.events.event_types import PUBLISHED_TYPES_MAX, SCHEMAS_BYTES_MAX
from ringback.services.limits import schema_checks
from tests.support.databases import count_rows, query_rows
from tests.support.examples import ALICE
from tests.support.service import CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R17")

PAID: dict[str, Any] = {"name": "order.paid", "data": {"order": 7}}


async def declare(client: httpx.AsyncClient, name: str = "order.paid", **body: Any) -> httpx.Response:
    return await client.put(f"/v1/event-types/{name}", json=body)


async def register(client: httpx.AsyncClient, *events: str, **body: Any) -> httpx.Response:
    return await client.post("/v1/webhooks", json={"url": CALLBACK_URL, "events": list(events)} | body)


async def read_events(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    return (await client.get("/v1/events", params=params)).json()["events"]


async def test_a_published_event_has_the_same_id_in_the_log_and_in_its_callback(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await declare(alice)
    await register(alice, "order.paid")

    response = await alice.post(
        "/v1/events",
        json=PAID | {"id": "order-7", "timestamp": "2026-11-20T16:00:00+01:00", "correlation_id": "c1"},
    )

    assert (response.status_code, response.json()) == (201, {"eventId": "order-7", "created": True})
    (event,) = await read_events(alice)
    (delivery,) = await service.read_deliveries("alice")
    callback = orjson.loads(delivery.body)
    assert delivery.event_id == callback["eventId"] == event["eventId"] == "order-7"
    assert callback["name"] == event["name"] == "order.paid"
    assert callback["timestamp"] == event["timestamp"] == "2026-11-20T15:00:00.000Z"
    assert event["data"] == {"order": 7}
    assert callback["data"] == {"order": 7, "subscription_id": delivery.webhook_id}


async def test_the_same_id_again_changes_nothing(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await declare(alice)
    await register(alice, "order.paid")
    await alice.post("/v1/events", json=PAID | {"id": "order-7"})

    repeated = await alice.post("/v1/events", json=PAID | {"id": "order-7", "data": {"other": True}})

    assert (repeated.status_code, repeated.json()) == (200, {"eventId": "order-7", "created": False})
    assert [event["data"] for event in await read_events(alice)] == [{"order": 7}]
    assert len(await service.read_deliveries("alice")) == 1


async def test_the_same_id_from_two_requests_at_once_is_one_event(alice: httpx.AsyncClient) -> None:
    responses = await asyncio.gather(*(alice.post("/v1/events", json=PAID | {"id": "order-7"}) for _ in range(8)))

    assert sorted(response.status_code for response in responses) == [200] * 7 + [201]
    assert len(await read_events(alice)) == 1


async def test_two_principals_may_use_the_same_id(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    for client in (alice, bob):
        assert (await client.post("/v1/events", json=PAID | {"id": "order-7"})).status_code == 201
    assert len(await read_events(bob)) == 1


async def test_a_batch_is_appended_in_its_order_and_counts_repeats(alice: httpx.AsyncClient) -> None:
    events = [PAID | {"id": each, "data": {"order": each}} for each in ("a", "b", "a", "c")]

    published = (await alice.post("/v1/events/batch", json={"events": events})).json()["events"]

    assert [each["created"] for each in published] == [True, True, False, True]
    assert [event["eventId"] for event in await read_events(alice)] == ["a", "b", "c"]


async def test_a_batch_with_a_wrong_event_publishes_none(alice: httpx.AsyncClient) -> None:
    response = await alice.post("/v1/events/batch", json={"events": [PAID, PAID | {"name": "call.finished"}]})

    assert response.status_code == 422
    assert await read_events(alice) == []


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "call.finished"},
        {"name": "ringback.paid"},
        {"name": "mcp.x"},
        {"name": "upstream.changed"},
        {"id": "evt_1"},
        {"id": "msg_1"},
        {"id": "github:1"},
    ],
)
async def test_what_could_be_mistaken_for_another_event_is_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    before = service.count_rows()

    response = await alice.post("/v1/events", json=PAID | wrong)

    assert response.status_code == 422
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_name_in_capitals_is_refused_with_the_rules_of_names(alice: httpx.AsyncClient) -> None:
    response = await alice.post("/v1/events", json=PAID | {"name": "Order.Paid"})

    assert (response.status_code, "use lower-case words with dots" in response.json()["detail"]) == (422, True)


async def test_data_above_the_limit_is_refused(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    caller = Caller(principal=ALICE, scopes=frozenset({Scope.CALLS}))
    too_large = PublishedEvent(name="order.paid", data={"text": "x" * DATA_BYTES_MAX})

    with pytest.raises(InvalidRequest, match="more than 65536 bytes"):
        await service.services.event_publishing.publish_events(caller, [too_large])

    assert await read_events(alice) == []


@pytest.mark.parametrize(("levels", "status"), [(190, 201), (191, 422)])
async def test_data_that_nests_deeper_than_clients_read_is_refused(
    alice: httpx.AsyncClient, levels: int, status: int
) -> None:
    data: dict[str, Any] = {}
    for _ in range(levels - 1):
        data = {"inner": data}

    response = await alice.post("/v1/events", json=PAID | {"data": data})

    assert (response.status_code, "deeper than 190 levels" in response.text) == (status, status == 422)
    assert len(await read_events(alice)) == (status == 201)


ORDER_SCHEMA: dict[str, Any] = {"properties": {"order": {"type": "integer"}}, "required": ["order"]}


async def test_data_that_does_not_match_the_declared_schema_is_refused_with_its_place(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await declare(alice, payload_schema=ORDER_SCHEMA)
    wrong = PAID | {"data": {"order": "seven"}}

    refused = await alice.post("/v1/events", json=wrong)
    empty: dict[str, Any] = PAID | {"data": {}}
    refused_batch = await alice.post("/v1/events/batch", json={"events": [PAID, wrong, empty]})

    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        [{"pointer": "#/data/order", "detail": "\"seven\" is not of type 'integer'"}],
    )
    pointers = [error["pointer"] for error in refused_batch.json()["errors"]]
    assert (refused_batch.status_code, pointers) == (422, ["#/events/1/data/order", "#/events/2/data"])
    assert await read_events(alice) == []
    assert (await alice.post("/v1/events", json=PAID)).status_code == 201
    assert (await bob.post("/v1/events", json=wrong)).status_code == 201, "the schema is that of another principal"


async def test_a_schema_that_cannot_be_checked_is_not_declared(alice: httpx.AsyncClient) -> None:
    refused = await declare(alice, payload_schema={"properties": {"order": {"type": "no-such-type"}}})

    assert (refused.status_code, "the keyword type has a wrong argument" in refused.json()["detail"]) == (422, True)
    assert (await alice.get("/v1/event-types")).json()["event_types"] == []


async def test_events_whose_check_takes_too_long_are_published_unchecked(
    alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    definitions = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(64)}
    await declare(alice, payload_schema={"$defs": {**definitions, "d64": False}, "$ref": "#/$defs/d0"})

    response = await alice.post("/v1/events/batch", json={"events": [PAID] * 100})

    assert response.status_code == 200
    assert [record.getMessage() for record in caplog.records].count("event.data_not_validated") == 1


async def test_a_principal_whose_checks_take_too_much_time_is_refused_and_others_are_not(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check takes a tenth of a second. Nothing comes back of the time, because a busy machine needs more for a request."""
    monkeypatch.setattr(schema_checks, "CHECK_RATE", RateLimit(per_second=1, burst=300_000))
    definitions = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(32)}
    schema = {"$defs": {**definitions, "d32": {"type": "object"}}, "$ref": "#/$defs/d0"}
    for client in (alice, bob):
        await declare(client, payload_schema=schema)

    responses = [await alice.post("/v1/events", json=PAID) for _ in range(40)]

    refused = next(each for each in responses if each.status_code != 201)
    assert (refused.status_code, refused.json()["quota"]) == (429, "schema_checks")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await declare(alice, payload_schema=schema)).status_code == 429
    assert (await bob.post("/v1/events", json=PAID)).status_code == 201


@pytest.mark.usefixtures("shared_service")
async def test_a_webhook_for_a_misspelled_name_is_refused_with_the_name_that_was_meant(
    alice: httpx.AsyncClient,
) -> None:
    await declare(alice)

    response = await register(alice, "order.payd")

    assert response.status_code == 422
    assert "Did you mean 'order.paid'?" in response.json()["detail"]


async def test_another_principals_event_type_looks_like_an_unknown_one(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await declare(alice)

    assert "order.paid'?" not in (await register(bob, "order.paid")).json()["detail"]
    assert (await bob.get("/v1/event-types")).json() == {"event_types": []}


async def test_the_first_event_of_a_name_declares_its_type(alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/events", json=PAID)

    (listed,) = (await alice.get("/v1/event-types")).json()["event_types"]

    assert (listed["name"], listed["payload_schema"]) == ("order.paid", {"type": "object"})
    assert (await register(alice, "order.paid")).status_code == 201


async def test_a_declaration_is_replaced_and_removed(alice: httpx.AsyncClient) -> None:
    await declare(alice, description="An order was paid.")
    await declare(alice, description="Money came in.")
    (listed,) = (await alice.get("/v1/event-types")).json()["event_types"]
    assert listed["description"] == "Money came in."

    assert (await alice.delete("/v1/event-types/order.paid")).status_code == 204
    assert (await alice.delete("/v1/event-types/order.paid")).status_code == 404


async def test_a_changed_schema_is_warned_about_unless_it_only_has_more_properties(alice: httpx.AsyncClient) -> None:
    amount = {"properties": {"amount": {"type": "integer"}}}
    wider = {"properties": {**amount["properties"], "note": {"type": "string"}}}
    narrower = {**wider, "required": ["amount"]}

    await alice.post("/v1/events", json=PAID)  # declares the type without a schema
    answers = [
        (await declare(alice, payload_schema=schema)).json() for schema in (amount, wider, narrower, narrower, amount)
    ]

    warnings = [answer.get("warning", "") for answer in answers]
    assert [bool(warning) for warning in warnings] == [False, False, True, False, True]
    assert "#: 'amount' is now required." in warnings[2]
    assert "warning" not in (await alice.get("/v1/event-types")).json()["event_types"][0]


async def test_the_number_of_declared_types_is_bounded(alice: httpx.AsyncClient) -> None:
    for number in range(PUBLISHED_TYPES_MAX):
        assert (await declare(alice, f"order.n{number}")).status_code == 201

    refused = await alice.post("/v1/events", json=PAID)

    assert (refused.status_code, refused.json()["quota"]) == (429, "event_types")
    assert await read_events(alice) == []


async def test_the_schemas_of_all_types_together_are_bounded_and_events_without_one_are_not_refused(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of a hundred large ones took a second, during which no other request was served."""
    schemas_bytes_max = SCHEMAS_BYTES_MAX // 20
    monkeypatch.setattr(event_types, "SCHEMAS_BYTES_MAX", schemas_bytes_max)
    large: dict[str, Any] = {"default": [{}] * 1_000}
    declared = [await declare(alice, f"order.n{number}", payload_schema=large) for number in range(20)]
    refused = [each for each in declared if each.status_code != 201]

    assert {(each.status_code, each.json()["quota"]) for each in refused} == {(429, "payload_schema_bytes")}
    assert len(declared) - len(refused) == schemas_bytes_max // estimate_decoded_bytes(jsontext.dumps(large))
    assert (await declare(alice, "order.n0", payload_schema={})).status_code == 200
    assert (await declare(alice, "order.n1", payload_schema=large)).status_code == 200
    assert (await alice.post("/v1/events", json=PAID)).status_code == 201


async def test_a_schema_can_become_simpler_although_all_together_are_above_the_bound(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a principal that declared them before there was a bound."""
    large: dict[str, Any] = {"default": [{}] * 100}
    smaller: dict[str, Any] = {"default": [{}] * 50}
    for number in range(2):
        assert (await declare(alice, f"order.n{number}", payload_schema=large)).status_code == 201
    monkeypatch.setattr(event_types, "SCHEMAS_BYTES_MAX", 1_000)

    assert (await declare(alice, "order.n0", payload_schema=large, description="Paid.")).status_code == 200
    assert (await declare(alice, "order.n0", payload_schema=smaller)).status_code == 200
    assert (await declare(alice, "order.n0", payload_schema=large)).status_code == 429


async def test_events_of_a_session_reach_the_webhooks_of_that_session_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await declare(alice)
    await register(alice, "order.paid", client_session_id="s1")

    for session in ("s1", "s2"):
        await alice.post("/v1/events", json=PAID | {"client_session_id": session})

    assert len(await service.read_deliveries("alice")) == 1
    assert len(await read_events(alice, name="order.paid")) == 2
    assert len(await read_events(alice, name="order.paid", client_session_id="s1")) == 1


# -- erasure ----------------------------------------------------------------------------------------------------------------


def find_private_text(service: ServiceUnderTest, private: str) -> list[str]:
    """The tables that hold the text."""
    return sorted(
        table
        for table in count_rows(service.folder)
        if private in repr([tuple(row) for row in query_rows(service.folder, f"SELECT * FROM {table}")])  # noqa: S608
    )


async def test_an_erased_session_leaves_empty_events_and_none_of_their_callbacks(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await declare(alice)
    await register(alice, "order.paid")
    published = PAID | {"id": "order-7", "data": {"status": "private-1"}, "correlation_id": "private-2"}
    await alice.post("/v1/events", json=published | {"client_session_id": "private-3"})

    erased = await alice.delete("/v1/sessions/private-3")

    assert (erased.json()["state"], erased.json()["events"], erased.json()["deliveries"]) == ("finished", 1, 1)
    (event,) = await read_events(alice)
    assert (event["eventId"], event["data"]) == ("order-7", {"erased": True})
    assert find_private_text(service, "private-") == ["erasures"]  # the target of the request


async def test_an_erased_principal_leaves_no_event_types(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    operator = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))
    await declare(alice, description="private-4")
    await alice.post("/v1/events", json=PAID | {"data": {"text": "private-5"}})

    erased = await operator.delete("/v1/principals/alice")
    for _ in range(2):
        await service.run_janitor()

    assert (await operator.get(erased.headers["location"])).json()["state"] == "finished"
    assert find_private_text(service, "private-") == []


async def test_a_declaration_creates_a_type_or_replaces_it_and_one_that_changes_nothing_is_no_change(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """A program declares its types at every start."""
    created, again = await declare(alice, description="Paid."), await declare(alice, description="Paid.")
    replaced = await declare(alice, description="An order is paid.")

    assert [each.status_code for each in (created, again, replaced)] == [201, 200, 200]
    assert again.json() == created.json()
    assert replaced.json()["description"] == "An order is paid."
    entries = (await alice.get("/v1/audit")).json()["entries"]
    assert [each["operation"] for each in entries].count("declare_event_type") == 2
