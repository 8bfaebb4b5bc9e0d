"""Scripted responses through the guarded transport of an HTTP upstream, and the errors that it makes of them."""

from typing import Any, Final

import httpx2
from mcp_types import ErrorData

from ringback.protocol.transport_errors import to_request_error
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from tests.support.clock import FakeClock

URL: Final = "http://upstream.example/mcp"
CALL: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}
JSON: Final = {"content-type": "application/json"}


class ScriptedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, outcome: httpx2.Response | Exception) -> None:
        self._outcome = outcome
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def guard_transport(inner: ScriptedTransport) -> GuardedTransport:
    return GuardedTransport(inner, faults=FaultCounter("stage", clock=FakeClock()), large_results=LargeResults())


async def post(
    outcome: httpx2.Response | Exception, message: dict[str, Any] = CALL, headers: dict[str, str] | None = None
) -> httpx2.Response:
    client = httpx2.AsyncClient(transport=guard_transport(ScriptedTransport(outcome)), trust_env=False)
    async with client:
        return await client.post(URL, json=message, headers=headers)


async def get_failure(outcome: httpx2.Response | Exception, headers: dict[str, str] | None = None) -> Exception:
    """The error of a `CALL` with this outcome."""
    response = await post(outcome, headers=headers)
    assert response.status_code >= 400
    return to_request_error(ErrorData.model_validate(response.json()["error"]))
