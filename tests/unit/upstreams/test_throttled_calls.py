"""A tools/call that is refused with HTTP 429 has not run, and is sent again."""

from typing import Any

import httpx2
import pytest

from ringback.domain import jsontext
from ringback.upstreams.dispatch_records import DISPATCH_RECORD
from ringback.upstreams.transports.throttled_calls import RETRY_AFTER_SECONDS_MAX, ThrottledCallTransport
from tests.support.clock import FakeClock

URL = "https://mcp.example/mcp"
DATE = "Fri, 20 Nov 2026 17:00:30 GMT"
"""Half a minute after the clock of the tests begins."""


class Upstream(httpx2.AsyncBaseTransport):
    """Refuses requests with these headers, one each, and accepts the next one. It is also the record of a call."""

    def __init__(self, *refusals: dict[str, str], status: int = 429, body: bytes = b"slow down") -> None:
        self.waited = 0.0
        self._refusals = list(refusals)
        self._status = status
        self._body = body
        self.steps: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:  # noqa: ARG002 - the name in httpx2
        self.steps.append("sent")
        if not self._refusals:
            return httpx2.Response(200)
        return httpx2.Response(self._status, headers=self._refusals.pop(0), content=self._body)

    async def record_unsent(self) -> None:
        self.steps.append("unsent")

    async def record_dispatch(self) -> None: ...

    async def wait_unsent(self, seconds: float) -> None:
        self.waited += seconds


async def send(upstream: Upstream, *, is_call: bool = True) -> tuple[int, float]:
    """The status, and the seconds that the request has waited."""
    extensions: dict[str, Any] = {DISPATCH_RECORD: upstream} if is_call else {}
    request = httpx2.Request("POST", URL, content=b"{}", extensions=extensions)
    response = await ThrottledCallTransport(upstream, clock=FakeClock()).handle_async_request(request)
    return response.status_code, upstream.waited


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("refusals", "waited"),
    [
        ([{"retry-after": "30"}], 30),
        ([{"retry-after": DATE}], 30),
        ([{"retry-after": "86400"}], RETRY_AFTER_SECONDS_MAX),
        ([{"retry-after": "1000000000000"}], RETRY_AFTER_SECONDS_MAX),
        ([{"retry-after": "soon"}], 1),
        ([dict[str, str]()] * 3, 1 + 2 + 4),
        ([{"retry-after": "0"}] * 8, 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60),
    ],
)
async def test_a_call_is_sent_again_after_the_pause_that_its_refusal_names(
    refusals: list[dict[str, str]], waited: float
) -> None:
    """It ended at once as an error of the upstream, and its client read that the tool may have run."""
    upstream = Upstream(*refusals)

    assert await send(upstream) == (200, waited)
    assert upstream.steps == [*["sent", "unsent"] * len(refusals), "sent"]


@pytest.mark.requirement("R33")
async def test_a_refusal_of_a_proxy_that_may_have_passed_the_call_on_is_the_response() -> None:
    upstream = Upstream({"retry-after": "1"}, status=503)

    assert await send(upstream) == (503, 0)
    assert upstream.steps == ["sent"]


@pytest.mark.parametrize(("headers", "status"), [({}, 429), ({"retry-after": "1"}, 200)], ids=["without", "with"])
async def test_an_error_of_the_server_itself_is_the_response_unless_it_has_a_retry_after(
    headers: dict[str, str], status: int
) -> None:
    body = jsontext.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "quota"}})
    upstream = Upstream(headers, body=body)
    extensions: dict[str, Any] = {DISPATCH_RECORD: upstream}
    request = httpx2.Request("POST", URL, content=b"{}", extensions=extensions)

    response = await ThrottledCallTransport(upstream, clock=FakeClock()).handle_async_request(request)

    assert (response.status_code, upstream.steps[1:]) == (status, [] if status == 429 else ["unsent", "sent"])
    assert status == 200 or await response.aread() == body


async def test_a_long_error_of_the_server_itself_is_the_response() -> None:
    """Its tool may have run, and would have run again at each refusal."""
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "The API refuses: quota. " * 100}}
    upstream = Upstream({"content-type": "application/json"}, body=jsontext.dumps(error))

    assert await send(upstream) == (429, 0)
    assert upstream.steps == ["sent"]


async def test_a_request_that_is_no_call_is_not_sent_again() -> None:
    assert await send(Upstream({"retry-after": "1"}), is_call=False) == (429, 0)
