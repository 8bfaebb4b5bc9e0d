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


@pytest.mark.usefixtures("shared_service")
async def test_the_owner_of_a_webhook_sees_no_principal_in_it(alice: httpx.AsyncClient) -> None:
    webhook = await register_webhook(alice)

    assert "principal" not in (await alice.get(f"/v1/webhooks/{webhook}")).json()


async def test_an_operator_reads_the_event_log_of_one_principal(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await service.finish_call(await start_call(alice))

    page = (await operator.get("/v1/events", params={"principal": "alice"})).json()

    assert [(each["name"], each["principal"]) for each in page["events"]] == [("call.finished", "alice")]
    assert page["cursor"] == (await alice.get("/v1/events")).json()["cursor"]


async def test_an_operator_reads_the_events_of_all_principals_newest_first(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    for client in (alice, bob, alice):
        await service.finish_call(await start_call(client))
        service.clock.advance(1)

    first = (await operator.get("/v1/events", params={"principal": "*", "limit": "2"})).json()
    second = (await operator.get("/v1/events", params={"principal": "*", "cursor": first["cursor"]})).json()
    last = (await operator.get("/v1/events", params={"principal": "*", "cursor": second["cursor"]})).json()

    assert [each["principal"] for each in (*first["events"], *second["events"])] == ["alice", "bob", "alice"]
    assert [each["timestamp"] for each in first["events"]] > [each["timestamp"] for each in second["events"]]
    assert (first["has_more"], second["has_more"], last["events"]) == (True, False, [])


@pytest.mark.parametrize("path", ["/v1/events?principal=*&wait_seconds=1", "/v1/events/stream?principal=*"])
async def test_the_events_of_all_principals_cannot_be_followed(operator: httpx.AsyncClient, path: str) -> None:
    refused = await operator.get(path)

    assert (refused.status_code, "Name one principal" in refused.json()["detail"]) == (422, True)


@pytest.mark.usefixtures("shared_service")
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


async def test_an_operator_that_acts_on_one_object_reads_whose_it_is(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    webhook_id, ended, open_call = await register_webhook(alice), await start_call(alice), await start_call(alice)
    await service.finish_call(ended)
    (delivery,) = await service.read_deliveries("alice")
    paths = [
        *(f"/v1/webhooks/{webhook_id}/verify", f"/v1/webhooks/{webhook_id}/test"),
        *(f"/v1/deliveries/{delivery.id}/redeliver", f"/v1/calls/{open_call}/cancel"),
    ]

    of_operator = [await operator.post(path, params={"principal": "*"}) for path in paths]
    of_owner = [await alice.post(path) for path in paths]

    assert [answer.json().get("principal") for answer in of_operator] == ["alice"] * 4
    assert all(answer.is_success and "principal" not in answer.json() for answer in of_owner)


async def test_an_operator_removes_a_webhook_of_its_owner_and_the_log_says_so(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = await register_webhook(alice)
    caplog.set_level(logging.INFO, logger="ringback.audit")

    misaddressed = await operator.delete(f"/v1/webhooks/{webhook}", params={"principal": "bob"})
    removed = await operator.delete(f"/v1/webhooks/{webhook}", params={"principal": "*"})

    assert (misaddressed.status_code, removed.status_code) == (404, 204)
    assert (await alice.get(f"/v1/webhooks/{webhook}")).status_code == 404
    audited = [each.__dict__ for each in caplog.records if each.name == "ringback.audit"]
    assert [(each["operation"], each["target"]) for each in audited] == [("remove_webhook", webhook)] * 2


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_cancels_the_calls_of_one_principal_and_not_of_all(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    of_alice, of_bob = await start_call(alice), await start_call(bob)

    cancelled = await operator.post("/v1/calls/cancel", params={"principal": "alice"}, json={"upstream": "git"})
    refused = await operator.post("/v1/calls/cancel", params={"principal": "*"}, json={"upstream": "git"})

    assert (cancelled.status_code, refused.status_code) == (200, 422)
    assert (await alice.get(f"/v1/calls/{of_alice}")).json()["status"] == "cancelled"
    assert (await bob.get(f"/v1/calls/{of_bob}")).json()["status"] == "working"


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_changes_only_the_state_of_a_webhook(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    webhook = await register_webhook(alice)

    body = {"url": "https://elsewhere.example/", "state": "active"}
    refused = await operator.patch(f"/v1/webhooks/{webhook}", params={"principal": "alice"}, json=body)

    assert (refused.status_code, (await alice.get(f"/v1/webhooks/{webhook}")).json()["url"]) == (403, CALLBACK_URL)


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/webhooks/by-name/hook"),
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


@pytest.mark.usefixtures("shared_service")
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


async def test_each_operation_for_operators_only_is_in_the_audit_log(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="ringback.audit")
    await alice.delete("/v1/principals/operator")
    erasure = (await operator.delete("/v1/principals/alice")).json()["id"]
    await operator.get(f"/v1/erasures/{erasure}")
    key = (await operator.post("/v1/keys", json={"principal": "bob"})).json()["id"]
    await operator.get("/v1/keys", params={"principal": "bob"})
    await operator.get(f"/v1/keys/{key}")
    rotated = (await operator.post(f"/v1/keys/{key}/rotate")).json()["id"]
    await operator.delete(f"/v1/keys/{rotated}")
    for action in ("pause", "drain", "resume"):
        await operator.post(f"/v1/upstreams/git/{action}")
    await operator.post("/v1/upstreams/reload")

    audited = [each.__dict__ for each in caplog.records if each.name == "ringback.audit"]

    assert [(each["operator"], each["principal"], each["operation"], each["target"]) for each in audited] == [
        ("alice", "operator", "erase_principal", None),
        ("operator", "alice", "erase_principal", None),
        ("operator", "alice", "read_erasure", erasure),
        ("operator", "bob", "create_key", None),
        ("operator", "bob", "list_keys", None),
        ("operator", None, "read_key", key),
        ("operator", None, "rotate_key", key),
        ("operator", None, "revoke_key", rotated),
        *[("operator", None, f"{action}_upstream", "git") for action in ("pause", "drain", "resume")],
        ("operator", None, "reload_upstreams", None),
    ]
    assert [each["msg"] for each in audited] == ["audit.operator_refused", *["audit.operator_request"] * 11]


async def test_the_keys_of_all_principals_are_listed_without_a_principal_or_for_a_star(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    everything = (await operator.get("/v1/keys")).json()["keys"]

    assert {each["principal"] for each in everything} == {"alice", "operator"}
    assert (await operator.get("/v1/keys", params={"principal": "*"})).json()["keys"] == everything


@pytest.mark.usefixtures("shared_service")
async def test_no_key_is_created_for_a_principal_that_is_named_like_all(service: ServiceUnderTest) -> None:
    with pytest.raises(Exception, match="must not be"):
        await service.create_client("*")


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_names_the_principal_whose_session_is_erased(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    """A client may name its session like an object of another principal, who would then count as the owner."""
    of_bob = await start_call(bob)
    called_so = (await alice.post("/v1/calls", json=CALL_BODY | {"client_session_id": of_bob})).json()["call"]["id"]
    await service.finish_call(called_so)

    refused = [
        await operator.delete(f"/v1/sessions/{name}", params={"principal": "*"}) for name in (of_bob, "conversation-42")
    ]

    assert [answer.status_code for answer in refused] == [422, 422]
    assert all("Name one principal" in answer.json()["detail"] for answer in refused)
    assert (await alice.get(f"/v1/calls/{called_so}")).status_code == 200
