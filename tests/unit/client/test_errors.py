"""The errors for a service that rejects, does not respond, or is not Ringback."""

import pickle
import traceback
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import respx

from ringback.backoff import RETRY_AFTER_SECONDS_MAX
from ringback.client import (
    CallHandle,
    ClientError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    InputRequest,
    InvalidRequest,
    NotFound,
    Problem,
    QuotaExceeded,
    RingbackClient,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from ringback.client.durable.errors import CallCancelled, InputRequired, StartUnknown
from ringback.client.problems import build_problem

PROBLEM_JSON = {"content-type": "application/problem+json"}


def problem(code: int, **members: Any) -> httpx.Response:
    return httpx.Response(code, json=members, headers=PROBLEM_JSON)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthenticated),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (413, InvalidRequest),
        (415, InvalidRequest),
        (418, Problem),
        (422, InvalidRequest),
        (429, QuotaExceeded),
        (500, Problem),
        (503, Unavailable),
    ],
)
async def test_each_status_has_its_exception(
    client: RingbackClient, service: respx.MockRouter, status: int, kind: type[Problem]
) -> None:
    service.delete("/v1/webhooks/wh_1").mock(
        return_value=problem(status, type="/problems/some-thing", title="Some thing", status=status, detail="Do this.")
    )

    with pytest.raises(Problem, match=r"^Do this\.$") as caught:
        await client.delete_webhook("wh_1")

    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.slug, caught.value.title) == (status, "some-thing", "Some thing")


async def test_further_members_of_a_problem_are_at_hand(client: RingbackClient, service: respx.MockRouter) -> None:
    service.post("/v1/calls").mock(
        return_value=problem(422, type="/problems/unknown-tool", title="Unknown tool", detail="No.", tool="git_lgo")
    )

    with pytest.raises(InvalidRequest) as caught:
        await client.start_call("git", "git_lgo")

    assert caught.value.extra == {"tool": "git_lgo"}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("soon", None),
        ("-1", None),
        ("Fri, 20 Nov 2026 17:00:00 GMT", None),
        ("9" * 400, RETRY_AFTER_SECONDS_MAX),
    ],
)
async def test_a_quota_says_when_to_try_again(
    client: RingbackClient, service: respx.MockRouter, header: str, seconds: float | None
) -> None:
    service.get("/v1/upstreams").mock(
        return_value=httpx.Response(429, json={}, headers={**PROBLEM_JSON, "retry-after": header})
    )

    with pytest.raises(QuotaExceeded) as caught:
        await client.upstreams()

    assert caught.value.retry_after_seconds == seconds


async def test_a_problem_document_may_leave_everything_out(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams").mock(return_value=problem(500))

    with pytest.raises(Problem, match="HTTP 500") as caught:
        await client.upstreams()

    assert (caught.value.type, caught.value.slug) == ("about:blank", "about:blank")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, html="<h1>Not Found</h1>"),
        httpx.Response(404, content=b"{", headers=PROBLEM_JSON),
        httpx.Response(404, json=["no object"], headers=PROBLEM_JSON),
        httpx.Response(200, html="<h1>Welcome</h1>"),
        httpx.Response(200, json={"upstreams": [{"name": 1}]}),
    ],
    ids=["a page", "broken JSON", "another shape", "a welcome", "unknown members"],
)
async def test_a_response_that_is_not_ringbacks_is_reported_as_such(
    client: RingbackClient, service: respx.MockRouter, answer: httpx.Response
) -> None:
    service.get("/v1/upstreams").mock(return_value=answer)

    with pytest.raises(UnexpectedAnswer, match=r"http://ringback\.example:8090 (responded|is invalid)"):
        await client.upstreams()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("refused"), "No server responds at http://ringback.example:8090"),
        (httpx.ReadTimeout("late"), "did not respond in time"),
        (httpx.RemoteProtocolError("broken"), "broke before the response"),
    ],
    ids=["refused", "late", "broken"],
)
async def test_a_failed_connection_says_what_to_do(
    client: RingbackClient, service: respx.MockRouter, error: httpx.TransportError, words: str
) -> None:
    service.get("/v1/upstreams").mock(side_effect=error)

    with pytest.raises(ConnectionFailed, match=words) as failed:
        await client.upstreams()
    assert "httpx" not in "".join(traceback.format_exception(failed.value, limit=0))


@pytest.mark.parametrize(
    "outcome",
    [
        httpx.ReadTimeout("late"),
        httpx.RemoteProtocolError("broken"),
        httpx.Response(502, html="<h1>Bad gateway</h1>"),
    ],
    ids=["late", "broken", "a proxy"],
)
async def test_the_call_is_to_be_looked_up_only_after_a_request_that_may_have_changed_it(
    client: RingbackClient, service: respx.MockRouter, outcome: httpx.TransportError | httpx.Response
) -> None:
    service.route().mock(side_effect=[outcome] * 16)

    with pytest.raises(ConnectionFailed, match=r"[.?] Try again\.$"):
        await client.upstreams()
    with pytest.raises(ConnectionFailed, match=r"[.?] Look its effect up, or try again\.$"):
        await client.restart_upstream("git")
    with pytest.raises(ConnectionFailed, match=r"[.?] Look the call up, or try again\.$"):
        await client.start_call("git", "git_log", {})


@pytest.mark.parametrize("status", [502, 503, 504, 521, 530])
async def test_a_proxy_that_cannot_reach_the_service_is_a_failed_connection(
    client: RingbackClient, service: respx.MockRouter, status: int
) -> None:
    service.delete("/v1/webhooks/wh_1").respond(status, html="<h1>Bad gateway</h1>")

    with pytest.raises(ConnectionFailed, match=f"A proxy at http://ringback.example:8090 responded with {status}"):
        await client.delete_webhook("wh_1")


@pytest.mark.parametrize(
    "base_url",
    [
        *("", "ringback.example", "ftp://ringback.example", "http://", "http://user:pw@host", "http://h:99999"),
        *("http://host/#", "http://host/?"),
    ],
)
def test_an_invalid_base_url_is_rejected_and_not_quoted(base_url: str) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:8090") as caught:
        RingbackClient(base_url)

    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("api_key", ["", "rbk_\n", "rbk_é", " rbk_x"])
def test_an_api_key_that_is_invalid_in_a_header_is_rejected_and_not_quoted(api_key: str) -> None:
    with pytest.raises(ValueError, match="The API key must be") as caught:
        RingbackClient("http://ringback.example", api_key=api_key)

    assert "rbk_" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["/mcp", "/mcp/git"])
async def test_the_url_of_an_mcp_endpoint_is_named_with_the_part_to_leave_out(
    respx_mock: respx.MockRouter, endpoint: str
) -> None:
    respx_mock.get(f"http://127.0.0.1:8090{endpoint}/v1/calls").respond(404, json={"jsonrpc": "2.0"})

    async with RingbackClient(f"http://127.0.0.1:8090{endpoint}") as client:
        with pytest.raises(UnexpectedAnswer) as caught:
            [call async for call in client.calls()]

    assert str(caught.value) == (
        f"http://127.0.0.1:8090{endpoint} responded with 404, and not as Ringback. Leave '{endpoint}' out: the URL of the "
        "service is http://127.0.0.1:8090"
    )


HANDLE = CallHandle(
    id="key",
    target="http://ringback.example",
    kind="ringback",
    rejoinable=True,
    state_is_shared=True,
    tool="git_log",
    created_at=datetime(2026, 11, 20, tzinfo=UTC),
)
ERRORS: list[ClientError] = [
    build_problem(409, {"detail": "taken", "tool": "git_log"}, retry_after_seconds=None),
    build_problem(429, {"detail": "later"}, retry_after_seconds=7.0),
    ConnectionFailed("no response"),
    StartUnknown("lost", HANDLE),
    InputRequired(HANDLE, {"r1": InputRequest(method="elicitation/create", params={"message": "Name?"})}),
    CallCancelled(HANDLE, "cancelled", {"message": "stopped"}),
]


@pytest.mark.parametrize("error", ERRORS, ids=[type(each).__name__ for each in ERRORS])
def test_an_error_reaches_the_parent_process_of_a_pool_unchanged(error: ClientError) -> None:
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled just before

    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


async def test_a_problem_that_nests_too_deeply_is_no_answer_of_the_service(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get("/v1/calls/call_1").respond(404, content="[" * 200_000, headers=PROBLEM_JSON)

    with pytest.raises(UnexpectedAnswer, match="404"):
        await client.call("call_1")
