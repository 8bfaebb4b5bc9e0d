"""Operators: keys with the scope `admin`, which read the rows of all principals and act for their owners."""

import logging
from typing import Any

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

Json = dict[str, Any]


@pytest.fixture
async def operator(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def register_webhook(client: httpx.AsyncClient) -> str:
    return (await client.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]


async def start_call(client: httpx.AsyncClient) -> str:
    return (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]


async def test_an_operator_lists_the_webhooks_of_all_principals_or_of_one(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    of_alice, of_bob = await register_webhook(alice), await register_webhook(bob)

    everything = (await operator.get("/v1/webhooks", params={"principal": "*"})).json()["webhooks"]
    of_one = (await operator.get("/v1/webhooks", params={"principal": "bob"})).json()["webhooks"]
    own = (await operator.get("/v1/webhooks")).json()["webhooks"]

    assert {(each["id"], each["principal"]) for each in everything} == {(of_alice, "alice"), (of_bob, "bob")}
    assert [each["id"] for each in of_one] == [of_bob]
    assert own == []


async def test_pages_of_all_principals_are_newest_first_and_complete(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    registered = [await register_webhook(client) for client in (alice, bob, alice, bob, alice)]

    found: list[str] = []
    cursor: str | None = None
    while True:
        params = {"principal": "*", "limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await operator.get("/v1/webhooks", params=params)).json()
        found += [each["id"] for each in page["webhooks"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert found == sorted(registered, reverse=True)


async def test_an_operator_lists_and_reads_calls_and_deliveries_of_all_principals(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await register_webhook(client)
        await service.finish_call(await start_call(client))

    calls = (await operator.get("/v1/calls", params={"principal": "*", "status": "completed"})).json()["calls"]
    deliveries = (await operator.get("/v1/deliveries", params={"principal": "*", "state": "pending"})).json()
    params = {"principal": "*"}
    read = [
        (await operator.get(f"/v1/calls/{calls[0]['id']}", params=params)).json(),
        (await operator.get(f"/v1/deliveries/{deliveries['deliveries'][0]['id']}", params=params)).json(),
    ]

    assert [each["principal"] for each in calls] == ["bob", "alice"]
    assert [each["principal"] for each in deliveries["deliveries"]] == ["bob", "alice"]
    assert [each["principal"] for each in read] == ["bob", "bob"]


async def test_the_owner_of_a_webhook_sees_no_principal_in_it(alice: httpx.AsyncClient) -> None:
    webhook = await register_webhook(alice)

    assert "principal" not in (await alice.get(f"/v1/webhooks/{webhook}")).json()


async def test_an_operator_reads_the_event_log_of_one_principal_and_not_of_all(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await service.finish_call(await start_call(alice))

    of_one = await operator.get("/v1/events", params={"principal": "alice"})
    of_all = await operator.get("/v1/events", params={"principal": "*"})

    assert [each["name"] for each in of_one.json()["events"]] == ["call.finished"]
    assert (of_all.status_code, "Name one principal" in of_all.json()["detail"]) == (422, True)


async def test_an_operator_switches_and_tests_a_webhook_for_its_owner(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    webhook = await register_webhook(alice)
    params = {"principal": "*"}

    disabled = await operator.patch(f"/v1/webhooks/{webhook}", params=params, json={"state": "disabled"})
    enabled = await operator.patch(f"/v1/webhooks/{webhook}", params=params, json={"state": "active"})
    tested = await operator.post(f"/v1/webhooks/{webhook}/test", params={"principal": "alice"})

    assert (disabled.json()["state"], enabled.json()["state"]) == ("disabled", "active")
    assert tested.status_code == 202
    assert (await alice.get(f"/v1/deliveries/{tested.json()['id']}")).status_code == 200


async def test_an_operator_changes_only_the_state_of_a_webhook(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    webhook = await register_webhook(alice)

    body = {"url": "https://elsewhere.example/", "state": "active"}
    refused = await operator.patch(f"/v1/webhooks/{webhook}", params={"principal": "alice"}, json=body)

    assert (refused.status_code, (await alice.get(f"/v1/webhooks/{webhook}")).json()["url"]) == (403, CALLBACK_URL)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/webhooks/{webhook}"),
        ("POST", "/v1/webhooks/{webhook}/rotate-secret"),
        ("GET", "/v1/calls/{call}/result"),
    ],
)
async def test_an_operation_of_the_owner_only_refuses_the_parameter(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient, method: str, path: str
) -> None:
    ids = {"webhook": await register_webhook(alice), "call": await start_call(alice)}
    await service.finish_call(ids["call"])

    refused = await operator.request(method, path.format(**ids), params={"principal": "alice"})

    assert (refused.status_code, "Leave out `principal`" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize("principal", ["*", "alice", "nobody"])
async def test_without_the_scope_admin_every_principal_is_refused_alike(
    service: ServiceUnderTest, alice: httpx.AsyncClient, principal: str
) -> None:
    others = await service.create_client("carol", scopes=frozenset(Scope) - {Scope.ADMIN})
    webhook = await register_webhook(alice)
    unknown = f"{webhook[:-1]}{'0' if webhook[-1] != '0' else '1'}"

    refusals = [
        await others.get(path, params={"principal": principal})
        for path in ("/v1/webhooks", "/v1/calls", f"/v1/webhooks/{webhook}", f"/v1/webhooks/{unknown}")
    ]
    foreign, missing = [await others.get(f"/v1/webhooks/{each}") for each in (webhook, unknown)]

    assert {(each.status_code, each.text) for each in refusals} == {(403, refusals[0].text)}
    assert (foreign.status_code, foreign.text) == (404, missing.text)


async def test_an_operator_finds_no_owner_of_an_unknown_id(operator: httpx.AsyncClient) -> None:
    for path in ("/v1/webhooks/wh_0", "/v1/calls/call_01JD0000000000000000000000", "/v1/deliveries/x"):
        assert (await operator.get(path, params={"principal": "*"})).status_code == 404


async def test_each_request_of_an_operator_is_in_the_audit_log(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="ringback.audit")
    webhook = await register_webhook(alice)
    await operator.get("/v1/webhooks", params={"principal": "*", "health": "failing"})
    await operator.patch(f"/v1/webhooks/{webhook}", params={"principal": "*"}, json={"state": "disabled"})
    carol = await service.create_client("carol")
    await carol.get("/v1/calls", params={"principal": "alice"})

    audited = [each.__dict__ for each in caplog.records if each.name == "ringback.audit"]

    facts = ("msg", "operator", "principal", "operation", "target")
    assert [tuple(each[fact] for fact in facts) for each in audited] == [
        ("audit.operator_request", "operator", "*", "list_webhooks", None),
        ("audit.operator_request", "operator", "*", "change_webhook", webhook),
        ("audit.operator_refused", "carol", "alice", "list_calls", None),
    ]
    assert all(each["key_id"].startswith("key_") for each in audited)


async def test_no_key_is_created_for_a_principal_that_is_named_like_all(service: ServiceUnderTest) -> None:
    with pytest.raises(Exception, match="must not be"):
        await service.create_client("*")
