"""A tools/call that is refused with HTTP 429 has not run, and is sent again."""

from typing import Any

import httpx2
import pytest

from ringback.upstreams.dispatch_records import DISPATCH_RECORD
from ringback.upstreams.transports.throttled_calls import RETRY_AFTER_SECONDS_MAX, ThrottledCallTransport
from tests.support.clock import FakeClock

URL = "https://mcp.example/mcp"
JSON = {"content-type": "application/json"}
DATE = "Fri, 20 Nov 2026 17:00:30 GMT"
"""Half a minute after the clock of the tests begins."""


class Upstream(httpx2.AsyncBaseTransport):
    """Refuses requests with these headers, one each, and accepts the next one. It is also the record of a call."""

    def __init__(self, *refusals: dict[str, str], status: int = 429) -> None:
        self._refusals = list(refusals)
        self._status = status
        self.steps: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:  # noqa: ARG002 - the name in httpx2
        self.steps.append("sent")
        return httpx2.Response(self._status, headers=self._refusals.pop(0)) if self._refusals else httpx2.Response(200)

    async def record_unsent(self) -> None:
        self.steps.append("unsent")

    async def record_dispatch(self) -> None: ...


async def send(upstream: Upstream, *, is_call: bool = True) -> tuple[int, float]:
    """The status, and the seconds that the request has waited."""
    clock = FakeClock()
    extensions: dict[str, Any] = {DISPATCH_RECORD: upstream} if is_call else {}
    request = httpx2.Request("POST", URL, content=b"{}", extensions=extensions)
    response = await ThrottledCallTransport(upstream, clock=clock).handle_async_request(request)
    return response.status_code, clock.monotonic()


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("refusals", "waited"),
    [
        ([{"retry-after": "30"}], 30),
        ([{"retry-after": DATE}], 30),
        ([{"retry-after": "30", **JSON}], 30),
        ([{"retry-after": "soon"}], 1),
        ([{}] * 3, 1 + 2 + 4),
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
@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        pytest.param({"retry-after": str(RETRY_AFTER_SECONDS_MAX + 1).split(".", maxsplit=1)[0]}, 429, id="hours"),
        pytest.param(JSON, 429, id="an error of the server"),
        pytest.param({"retry-after": "1"}, 503, id="a proxy that may have passed it on"),
    ],
)
async def test_any_other_refusal_is_the_response(refusal: dict[str, str], status: int) -> None:
    upstream = Upstream(refusal, status=status)

    assert await send(upstream) == (status, 0)
    assert upstream.steps == ["sent"]


async def test_a_request_that_is_no_call_is_not_sent_again() -> None:
    assert await send(Upstream({"retry-after": "1"}), is_call=False) == (429, 0)
