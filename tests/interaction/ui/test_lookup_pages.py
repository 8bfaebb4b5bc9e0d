"""Sessions and look-ups in the dashboard."""

from dataclasses import replace

import pytest

from ringback.domain.call import Handle
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import sign_in

SESSION = 'chat/7 "é"?'


async def test_every_id_and_key_of_a_call_leads_to_its_page_and_none_of_another_principal(
    service: ServiceUnderTest,
) -> None:
    alice = await service.create_client("alice")
    body = CALL_BODY | {"client_session_id": SESSION, "correlation_id": "c&1", "callback": {"url": CALLBACK_URL}}
    started = await alice.post("/v1/calls", json=body, headers={"Idempotency-Key": "key-1"})
    call_id = started.json()["call"]["id"]

    async def name_task(tx: Transaction) -> None:
        (call,) = await tx.calls.get_many([call_id])
        handle = Handle(driver="task", data={"task_id": "task-9"})
        changed = replace(call, handle=handle)
        assert await tx.calls.update(changed, CallChange.QUEUED, expected=call.status, lease_token=None)

    await service.store.write(name_task)
    await service.finish_call(call_id)
    (delivery,) = await service.read_deliveries("alice")
    await service.settle_deliveries([delivery], DeliveryState.DEAD)
    mine, foreign = await sign_in(service, "alice"), await sign_in(service, "bob")
    operator = await sign_in(service, "root", scopes=frozenset({Scope.ADMIN}))

    places = {
        call_id: f"/ui/calls/{call_id}",
        "key-1": f"/ui/calls/{call_id}",
        "task-9": f"/ui/calls/{call_id}",
        "c&1": "/ui/calls?correlation_id=c%261",
        SESSION: "/ui/sessions/chat%2F7%20%22%C3%A9%22%3F",
        delivery.webhook_id: f"/ui/webhooks/{delivery.webhook_id}",
    }
    for text, place in places.items():
        assert (await mine.open("/lookup", q=text)).headers.get("location") == place, text
        assert "Nothing of yours has this id or key." in (await foreign.open("/lookup", q=text)).text, text
    for text in (delivery.id, delivery.event_id or "", f" {delivery.id} "):
        page = (await mine.open("/lookup", q=text)).text
        assert f"/ui/deliveries/{delivery.id}" in page
        assert f"/ui/calls/{call_id}" in page
        assert "Nothing of yours has this id or key." in (await foreign.open("/lookup", q=text)).text
    assert (await operator.open("/lookup", q=call_id)).headers["location"] == f"/ui/calls/{call_id}"
    for text in ("x" * 301, "a\x00b", "a\nb"):
        assert (await mine.open("/lookup", q=text)).status_code == 422
    assert "task id at" in (await mine.open("/lookup", q="unknown")).text
    assert (await mine.open("/lookup")).status_code == 200


@pytest.mark.usefixtures("shared_service")
async def test_the_key_of_a_reporter_leads_to_its_call(service: ServiceUnderTest) -> None:
    reporter = await service.create_client("alice", scopes=frozenset({Scope.ADOPT}))
    report = {"key": "build-7", "upstream": "builder", "tool": "build"}
    call_id = (await reporter.post("/v1/calls/report", json=report)).json()["call"]["id"]
    mine, foreign = await sign_in(service, "alice"), await sign_in(service, "bob")

    assert (await mine.open("/lookup", q="build-7")).headers.get("location") == f"/ui/calls/{call_id}"
    assert "Nothing of yours has this id or key." in (await foreign.open("/lookup", q="build-7")).text


@pytest.mark.usefixtures("shared_service")
async def test_a_session_is_drawn_with_its_calls_and_shows_none_of_others(service: ServiceUnderTest) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    body = CALL_BODY | {"client_session_id": SESSION}
    own = [(await alice.post("/v1/calls", json=body)).json()["call"]["id"] for _ in range(2)]
    foreign = (await bob.post("/v1/calls", json=body)).json()["call"]["id"]
    await service.finish_call(own[0])
    await alice.get(f"/v1/calls/{own[0]}/result")
    await service.services.call_resumes.write_pending()
    browser = await sign_in(service, "alice")

    page = (await browser.http.get("/ui/sessions/chat%2F7%20%22%C3%A9%22%3F")).text
    empty = await browser.open("/sessions/none")

    assert all(f"/ui/calls/{call_id}" in page for call_id in own)
    assert foreign not in page
    assert "Client returned for the result" in page
    assert "rotate(45" in page
    assert "No call of yours names this client session." in empty.text
    assert (await browser.http.get("/ui/sessions/a%00b")).status_code == 404


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_sees_whose_calls_a_session_has_and_goes_on_to_one_principal(
    service: ServiceUnderTest,
) -> None:
    body = CALL_BODY | {"client_session_id": "shared"}
    for principal in ("alice", "bob"):
        await (await service.create_client(principal)).post("/v1/calls", json=body)
    operator = await sign_in(service, "root", scopes=frozenset({Scope.READ, Scope.ADMIN}))

    both = (await operator.open("/sessions/shared")).text
    of_bob = (await operator.open("/sessions/shared", principal="bob")).text
    own = (await (await sign_in(service, "alice")).open("/sessions/shared")).text

    assert all(f'<a href="/ui/sessions/shared?principal={name}">{name}</a>' in both for name in ("alice", "bob"))
    assert "calls of all principals that use this session" in both
    assert "Newest call" in of_bob
    assert all(">Principal<" not in page for page in (of_bob, own))
    assert "yours" not in (await operator.open("/sessions/none")).text
    assert "yours" not in (await operator.open("/lookup", q="unknown")).text
