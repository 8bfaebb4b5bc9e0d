"""Invalid parameters of a URL get a problem document that names them, and valid ones in every form are read."""

import httpx
import pytest

from tests.support.rejections import assert_rejected
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest

pytestmark = pytest.mark.usefixtures("shared_service")


@pytest.mark.parametrize("path", ["/v1/calls", "/v1/webhooks", "/v1/deliveries", "/v1/events"])
@pytest.mark.parametrize(
    ("question", "parameter"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "x" * 769}, "cursor"),
        ({"sesion_id": "a"}, "sesion_id"),
    ],
)
async def test_a_wrong_parameter_is_named(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str, question: dict[str, str], parameter: str
) -> None:
    problem = await assert_rejected(service, alice, "GET", path, params=question)

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-request")
    assert [error["parameter"] for error in problem["errors"]] == [parameter]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("min_runs=1_0", "min_runs"),
        ("min_runs=%2B2", "min_runs"),
        ("min_runs=2.0", "min_runs"),
        ("started=yes", "started"),
        ("started=0", "started"),
        ("limit=%202", "limit"),
        ("limit=\u0662", "limit"),
        ("limit=1&limit=2", "limit"),
        ("tool=a&tool=a", "tool"),
        ("principal=alice&principal=bob", "principal"),
    ],
)
async def test_numbers_in_another_form_and_repeated_parameters_are_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, query: str, parameter: str
) -> None:
    problem = await assert_rejected(service, alice, "GET", f"/v1/calls?{query}")

    assert problem["status"] == 422
    assert [error["parameter"] for error in problem["errors"]] == [parameter]


@pytest.mark.parametrize(
    ("method", "url", "place"),
    [
        ("GET", "/v1/calls?correlation_id=caf%E9", "query"),
        ("GET", "/v1/events?client_session_id=%ED%A0%80", "query"),
        ("DELETE", "/v1/sessions/caf%E9", "path"),
    ],
)
async def test_a_url_that_is_not_utf8_is_refused_instead_of_naming_something_else(
    alice: httpx.AsyncClient, method: str, url: str, place: str
) -> None:
    refused = await alice.request(method, url)

    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/malformed-request")
    assert refused.json()["detail"].startswith(f"The {place} of the URL has bytes that are not UTF-8.")


async def test_text_in_a_url_may_be_any_unicode(alice: httpx.AsyncClient) -> None:
    assert (await alice.get("/v1/calls?correlation_id=caf%C3%A9+%F0%9F%98%80%EF%BF%BD")).status_code == 200


async def test_a_list_of_outcomes_may_be_repeated_and_seconds_may_have_a_fraction(alice: httpx.AsyncClient) -> None:
    answers = [
        await alice.get(path)
        for path in ("/v1/calls?outcome=result&outcome=cancelled&min_runs=2", "/v1/events?wait_seconds=0.01")
    ]

    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "soon"])
async def test_a_wait_is_bounded(service: ServiceUnderTest, alice: httpx.AsyncClient, wait: str) -> None:
    problem = await assert_rejected(service, alice, "GET", "/v1/events", params={"wait_seconds": wait})

    assert problem["errors"][0]["parameter"] == "wait_seconds"


@pytest.mark.parametrize("path", ["/v1/calls", "/v1/webhooks", "/v1/deliveries", "/v1/events"])
async def test_a_cursor_of_another_list_is_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient, path: str
) -> None:
    for _ in range(2):
        await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
    for _ in range(2):
        await service.finish_call((await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"])
    cursors = {
        other: (await alice.get(other, params={"limit": 1})).json()["cursor" if "events" in other else "next_cursor"]
        for other in ("/v1/calls", "/v1/webhooks", "/v1/deliveries", "/v1/events")
    }
    assert (await alice.get(path, params={"cursor": cursors.pop(path)})).status_code == 200

    for cursor in (*cursors.values(), "nonsense", "MTpjYWxsczp4", "é"):
        problem = await assert_rejected(service, alice, "GET", path, params={"cursor": cursor})
        assert (problem["status"], problem["type"]) == (422, "/problems/invalid-cursor")
        assert "Start without one" in problem["detail"]


async def test_a_webhook_is_not_registered_from_a_cursor_of_another_list(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for _ in range(2):
        await alice.post("/v1/calls", json=CALL_BODY)
    cursor = (await alice.get("/v1/calls", params={"limit": 1})).json()["next_cursor"]

    problem = await assert_rejected(
        service, alice, "POST", "/v1/webhooks", json={"url": CALLBACK_URL, "cursor": cursor}
    )

    assert (problem["status"], problem["type"]) == (422, "/problems/invalid-cursor")
