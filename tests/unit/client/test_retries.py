"""Which requests are repeated, how often, and after which pauses."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import respx

from ringback.client import CallbackOptions, CallOptions, Conflict, ConnectionFailed, RingbackClient, Unavailable
from ringback.schemas import examples
from ringback.signing.secrets import SECRET_BYTES, parse_secret
from tests.support.clock import FakeClock
from tests.support.mocked_requests import get_last_request, list_requests, parse_body, parse_query

STARTED: dict[str, Any] = {"call": examples.WORKING_CALL, "resume_token": "token", "webhooks": []}
RESUMED: dict[str, Any] = {"call": examples.WORKING_CALL, "resume_token": "token", "events": []}
PROBLEM_JSON = {"content-type": "application/problem+json"}
REFUSED = httpx.ConnectError("refused")
CONNECTION_ERROR = httpx.RemoteProtocolError("broken")
TIMEOUT_ERROR = httpx.ReadTimeout("late")
BAD_GATEWAY = httpx.Response(502, html="<h1>Bad gateway</h1>")
UNAVAILABLE = httpx.Response(503, json={}, headers=PROBLEM_JSON)
PROXY_UNAVAILABLE = httpx.Response(503, html="<h1>Service unavailable</h1>")
LIMITED = httpx.Response(429, json={}, headers=PROBLEM_JSON)
UNKNOWN_KEY = httpx.Response(401, json={}, headers=PROBLEM_JSON)
MISSING_SCOPE = httpx.Response(403, json={}, headers=PROBLEM_JSON)


@pytest.mark.parametrize(
    "failure",
    [REFUSED, CONNECTION_ERROR, UNAVAILABLE, BAD_GATEWAY],
    ids=["refused", "broken", "503", "a proxy without a service"],
)
async def test_reading_is_repeated_until_it_works(
    client: RingbackClient, service: respx.MockRouter, failure: httpx.Response | Exception
) -> None:
    route = service.get("/v1/upstreams")
    route.side_effect = [failure, failure, httpx.Response(200, json={"upstreams": []})]

    assert await client.upstreams() == ()
    assert route.call_count == 3


async def test_a_start_is_repeated_with_the_same_key_and_body(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.post("/v1/calls")
    route.side_effect = [CONNECTION_ERROR, UNAVAILABLE, httpx.Response(202, json=STARTED)]

    await client.start_call("git", "git_log", {"repo_path": "."})

    assert len({(request.headers["idempotency-key"], request.content) for request in list_requests(route)}) == 1
    assert route.call_count == 3


async def test_a_lost_response_does_not_lose_the_secret_of_a_callback(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.post("/v1/calls")
    route.side_effect = [CONNECTION_ERROR, httpx.Response(202, json=STARTED)]

    started = await client.start_call("git", "git_log", callback={"url": "https://agent.example/callback"})

    assert started.callback_secret is not None
    assert len(parse_secret(started.callback_secret)) == SECRET_BYTES
    assert [parse_body(request)["callback"]["secret"] for request in list_requests(route)] == [
        started.callback_secret
    ] * 2


async def test_a_lost_response_to_a_batch_loses_no_secret_either(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.post("/v1/calls/batch")
    route.side_effect = [CONNECTION_ERROR, httpx.Response(202, json={"calls": [STARTED] * 4})]
    callback: CallbackOptions = {"url": "https://agent.example/callback"}
    own: CallbackOptions = {**callback, "secret": "whsec_own"}

    starts: list[CallOptions] = [
        {"upstream": "git", "tool": "git_log", "callback": callback},
        {"upstream": "git", "tool": "git_log", "callback": own},
        {"upstream": "git", "tool": "git_log", "callback": callback, "idempotency_key": "mine"},
        {"upstream": "git", "tool": "git_log"},
    ]
    started = await client.start_calls(starts)

    sent = [call.get("callback") for call in parse_body(get_last_request(route))["calls"]]
    assert started[0].callback_secret is not None
    assert [each.callback_secret for each in started[1:]] == [None] * 3
    assert sent == [{**callback, "secret": started[0].callback_secret}, own, callback, None]


async def test_a_call_of_a_batch_starts_at_a_time_or_at_its_text(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.post("/v1/calls/batch").respond(202, json={"calls": [STARTED] * 2})
    later = datetime(2027, 1, 1, tzinfo=UTC)

    await client.start_calls(
        [{"upstream": "git", "tool": "git_log", "not_before": each} for each in (later, later.isoformat())]
    )

    sent = [call["not_before"] for call in parse_body(get_last_request(route))["calls"]]
    assert sent == ["2027-01-01T00:00:00+00:00"] * 2


async def test_cancelling_and_resuming_are_repeated_too(client: RingbackClient, service: respx.MockRouter) -> None:
    service.post("/v1/calls/call_1/cancel").side_effect = [
        CONNECTION_ERROR,
        httpx.Response(200, json=examples.WORKING_CALL),
    ]
    service.post("/v1/resume").side_effect = [CONNECTION_ERROR, httpx.Response(200, json=RESUMED)]

    assert (await client.cancel("call_1")).id == (await client.resume("token")).call.id


async def test_three_tries_are_all_with_growing_pauses_between(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/upstreams").mock(side_effect=REFUSED)

    with pytest.raises(ConnectionFailed):
        await client.upstreams()

    assert route.call_count == 3
    assert clock.monotonic() == 2.5


async def test_a_repeated_503_is_raised(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/upstreams").mock(return_value=UNAVAILABLE)

    with pytest.raises(Unavailable):
        await client.upstreams()

    assert route.call_count == 3


NOT_REPEATABLE: dict[str, Callable[[Any], Awaitable[object]]] = {
    "register_webhook": lambda client: client.register_webhook("https://agent.example/callback"),
    "put_webhook": lambda client: client.put_webhook("agent", "https://agent.example/callback", secret=None),
    "publish_event": lambda client: client.publish_event("order.paid", {}, id=None),
    "publish_events": lambda client: client.publish_events([{"name": "order.paid", "data": {}, "id": None}]),
}


@pytest.mark.parametrize("method", NOT_REPEATABLE.values(), ids=NOT_REPEATABLE)
async def test_requests_that_must_not_be_repeated_are_sent_once(
    client: RingbackClient, service: respx.MockRouter, method: Callable[[Any], Awaitable[object]]
) -> None:
    """A member that is None says nothing: the service chooses the event's id and the webhook's secret."""
    route = service.route().mock(side_effect=CONNECTION_ERROR)

    with pytest.raises(ConnectionFailed):
        await method(client)

    assert route.call_count == 1


async def test_a_read_timeout_is_not_retried(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/v1/upstreams").mock(side_effect=TIMEOUT_ERROR)

    with pytest.raises(ConnectionFailed):
        await client.upstreams()

    assert route.call_count == 1


@pytest.mark.parametrize("wait_seconds", [None, 60.0])
async def test_the_read_timeout_leaves_time_for_the_wait(
    client: RingbackClient, service: respx.MockRouter, wait_seconds: float | None
) -> None:
    route = service.get("/v1/calls/call_1").respond(json=examples.WORKING_CALL)

    await client.call("call_1", wait_seconds=wait_seconds)

    timeout = get_last_request(route).extensions["timeout"]
    assert (timeout["connect"], timeout["read"]) == (5.0, 30.0 + (wait_seconds or 0))


async def test_waiting_polls_until_the_call_has_ended(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/calls/call_1")
    route.side_effect = [
        httpx.Response(200, json=examples.WORKING_CALL),
        httpx.Response(200, json={**examples.WORKING_CALL, "status": "input_required"}),
        httpx.Response(200, json=examples.FINISHED_CALL),
    ]

    call = await client.wait("call_1")

    assert call.final
    assert [parse_query(request)["wait_seconds"] for request in list_requests(route)] == ["45.0"] * 3
    assert clock.monotonic() == 2  # an immediate response does not cause an immediate next poll


async def test_waiting_repeats_the_longest_wait_of_the_service_until_the_time_is_over(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    def hold_response(request: httpx.Request) -> httpx.Response:
        clock.advance(min(45.0, float(parse_query(request)["wait_seconds"])))
        return httpx.Response(200, json=examples.WORKING_CALL)

    route = service.get("/v1/calls/call_1").mock(side_effect=hold_response)

    await client.wait("call_1", timeout_seconds=100)

    assert [parse_query(request)["wait_seconds"] for request in list_requests(route)] == ["45.0", "45.0", "10.0"]
    assert clock.monotonic() == 100


async def test_a_wait_whose_connection_breaks_late_is_repeated_for_what_is_left_of_its_time(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    asked: list[float] = []

    def break_late(request: httpx.Request) -> httpx.Response:
        asked.append(float(parse_query(request)["wait_seconds"]))
        clock.advance(min(40.0, asked[-1]))
        if len(asked) == 1:
            raise CONNECTION_ERROR
        return httpx.Response(200, json=examples.WORKING_CALL)

    service.get("/v1/calls/call_1").mock(side_effect=break_late)

    await client.wait("call_1", timeout_seconds=45)

    assert asked == [45.0, 4.5]
    assert clock.monotonic() == 45


async def test_waiting_gives_the_call_as_it_is_when_the_time_is_over(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get("/v1/calls/call_1").respond(json=examples.WORKING_CALL)

    call = await client.wait("call_1", timeout_seconds=1.5)

    assert call.status == "working"
    assert clock.monotonic() == 1.5
    assert [parse_query(request)["wait_seconds"] for request in list_requests(route)] == ["1.5", "0.5", "0.0"]


@pytest.mark.parametrize("last", [UNAVAILABLE, LIMITED, UNKNOWN_KEY, MISSING_SCOPE], ids=["503", "429", "401", "403"])
@pytest.mark.parametrize(
    "first", [CONNECTION_ERROR, BAD_GATEWAY, PROXY_UNAVAILABLE], ids=["broken", "502", "503 of a proxy"]
)
async def test_a_refusal_after_an_attempt_that_may_have_arrived_does_not_say_that_nothing_was_done(
    client: RingbackClient, service: respx.MockRouter, first: httpx.Response | Exception, last: httpx.Response
) -> None:
    service.post("/v1/calls").side_effect = [first, last, last][: 3 if last is UNAVAILABLE else 2]

    with pytest.raises(ConnectionFailed, match="earlier attempt may have arrived"):
        await client.start_call("git", "git_log")


async def test_a_503_after_attempts_that_did_not_arrive_says_that_nothing_was_started(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.post("/v1/calls").side_effect = [REFUSED, UNAVAILABLE, UNAVAILABLE]

    with pytest.raises(Unavailable):
        await client.start_call("git", "git_log")


async def test_an_answer_that_may_have_ended_its_call_does_not_count_as_too_late(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    ended = httpx.Response(409, json={"detail": "The call has ended."}, headers=PROBLEM_JSON)
    service.post("/v1/calls/call_1/input").side_effect = [CONNECTION_ERROR, ended, REFUSED, ended]

    with pytest.raises(ConnectionFailed, match="earlier attempt may have arrived"):
        await client.answer("call_1", {"r1": {"action": "decline"}})
    with pytest.raises(Conflict, match="has ended"):
        await client.answer("call_1", {"r1": {"action": "decline"}})
