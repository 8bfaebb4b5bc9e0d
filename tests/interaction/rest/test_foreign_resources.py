"""Foreign and unknown resources get responses with the same bytes."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.requirement("R25")

UNKNOWN = {
    "call": "call_01KAGZ8A00QW7T3M5N9R1S2V4X",
    "webhook": "wh_01KAGZ8A00QW7T3M5N9R1S2V4X",
    "delivery": "dlv_01KAGZ8A00QW7T3M5N9R1S2V4X",
}
MISSHAPEN = [
    "call_",
    "x",
    "wh_01KAGZ8A00QW7T3M5N9R1S2V4X ",
    "%00",
    "%F0%9F%94%94",
    "a" * 3000,
    "'; DROP TABLE calls; --",
]

OPERATIONS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/v1/calls/{call}", None),
    ("GET", "/v1/calls/{call}?wait_seconds=1", None),
    ("GET", "/v1/calls/{call}/result", None),
    ("POST", "/v1/calls/{call}/cancel", None),
    ("POST", "/v1/calls/{call}/resume-token", None),
    ("HEAD", "/v1/calls/{call}/result", None),
    ("GET", "/v1/webhooks/{webhook}", None),
    ("PATCH", "/v1/webhooks/{webhook}", {"state": "disabled"}),
    ("DELETE", "/v1/webhooks/{webhook}", None),
    ("POST", "/v1/webhooks/{webhook}/test", None),
    ("POST", "/v1/webhooks/{webhook}/verify", None),
    ("POST", "/v1/webhooks/{webhook}/rotate-secret", {"overlap_seconds": 60}),
    ("POST", "/v1/webhooks/{webhook}/replay", {"dead": True}),
    ("GET", "/v1/deliveries/{delivery}", None),
    ("POST", "/v1/deliveries/{delivery}/redeliver", None),
]


@dataclass(frozen=True, slots=True)
class OwnedIds:
    call: str
    webhook: str
    delivery: str


@pytest.fixture
async def hers(service: ServiceUnderTest, alice: httpx.AsyncClient) -> OwnedIds:
    return await make_resources(service, alice)


@pytest.fixture(scope="module")
async def shared_hers(shared_service: ServiceUnderTest) -> OwnedIds:
    return await make_resources(shared_service, await shared_service.create_client("alice"))


async def make_resources(service: ServiceUnderTest, owner: httpx.AsyncClient) -> OwnedIds:
    """One resource of each kind, the owner's only ones."""
    webhook = (await owner.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    call = (await owner.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(call)
    (delivery,) = (await owner.get("/v1/deliveries")).json()["deliveries"]
    return OwnedIds(call, webhook, delivery["id"])


def named(path: str, ids: OwnedIds) -> str:
    return path.format(call=ids.call, webhook=ids.webhook, delivery=ids.delivery)


def response_bytes(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    headers = dict(answer.headers)
    assert headers.pop("x-request-id")  # each request has its own
    return answer.status_code, answer.content, headers


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
async def test_a_foreign_id_gets_the_error_of_an_unknown_one(
    service: ServiceUnderTest,
    bob: httpx.AsyncClient,
    shared_hers: OwnedIds,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    before = service.count_rows()

    foreign = await bob.request(method, named(path, shared_hers), json=body)
    unknown = await bob.request(method, named(path, OwnedIds(**UNKNOWN)), json=body)

    assert response_bytes(foreign) == response_bytes(unknown)
    assert foreign.status_code == 404
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
async def test_a_malformed_id_gets_the_error_of_an_unknown_one(
    bob: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None
) -> None:
    unknown = await bob.request(method, named(path, OwnedIds(**UNKNOWN)), json=body)

    for text in MISSHAPEN:
        misshapen = await bob.request(method, named(path, OwnedIds(text, text, text)), json=body)
        assert response_bytes(misshapen) == response_bytes(unknown), text


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
async def test_the_owner_of_a_resource_can_read_it(
    service: ServiceUnderTest, method: str, path: str, body: dict[str, Any] | None
) -> None:
    owner = await service.create_client(f"owner-{OPERATIONS.index((method, path, body))}")
    owned = await make_resources(service, owner)

    assert (await owner.request(method, named(path, owned), json=body)).is_success


async def test_lists_show_only_resources_of_the_caller(bob: httpx.AsyncClient, hers: OwnedIds) -> None:
    for path, name in [
        ("/v1/calls", "calls"),
        ("/v1/webhooks", "webhooks"),
        ("/v1/deliveries", "deliveries"),
        ("/v1/events", "events"),
        (f"/v1/events?call_id={hers.call}", "events"),
        (f"/v1/deliveries?call_id={hers.call}", "deliveries"),
        (f"/v1/deliveries?webhook_id={hers.webhook}", "deliveries"),
    ]:
        assert (await bob.get(path)).json()[name] == [], path


async def test_a_webhook_for_a_foreign_call_is_refused_like_one_for_none(
    service: ServiceUnderTest, bob: httpx.AsyncClient, hers: OwnedIds
) -> None:
    before = service.count_rows()

    foreign = await bob.post("/v1/webhooks", json={"url": CALLBACK_URL, "call_id": hers.call})
    unknown = await bob.post("/v1/webhooks", json={"url": CALLBACK_URL, "call_id": UNKNOWN["call"]})

    assert response_bytes(foreign) == response_bytes(unknown)
    assert foreign.status_code == 422
    assert service.count_rows() == before


async def test_a_foreign_webhook_gets_no_callback_for_own_calls(
    service: ServiceUnderTest, bob: httpx.AsyncClient, hers: OwnedIds
) -> None:
    started = (await bob.post("/v1/calls", json=CALL_BODY)).json()
    await service.finish_call(started["call"]["id"])

    assert started["webhooks"] == []
    assert await service.read_deliveries("bob") == []
    assert len(await service.read_deliveries("alice")) == 1


async def test_a_cursor_of_a_foreign_log_shows_no_foreign_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, hers: OwnedIds
) -> None:
    cursor = (await alice.get("/v1/events")).json()["cursor"]

    page = (await bob.get("/v1/events", params={"cursor": cursor})).json()

    assert page["events"] == []
