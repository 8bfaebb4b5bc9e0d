"""DurableCaller with a mocked service and a clock that does not wait."""

from collections.abc import Callable
from typing import Any

import httpx

from ringback.client import RingbackClient
from ringback.client.durable import DurableCaller, RequestStateManager
from ringback.schemas import examples
from tests.support.plain_durable_callers import FastClock

CALL: dict[str, Any] = examples.WORKING_CALL
STARTED = httpx.Response(202, json={"call": CALL, "resume_token": "token", "webhooks": []})
RESULT = {"content": [{"type": "text", "text": "done"}]}


def create_caller(
    respond: Callable[[httpx.Request], httpx.Response], state: RequestStateManager | None = None
) -> DurableCaller:
    client = RingbackClient("http://ringback.example", transport=httpx.MockTransport(respond), clock=FastClock())
    return DurableCaller(client, state=state, clock=FastClock())


def start_or_read(request: httpx.Request) -> httpx.Response:
    """A service that starts each call, whose calls go on, and that cannot be reached for a cancellation."""
    if request.url.path.endswith("/cancel"):
        raise httpx.ConnectError("down", request=request)
    return STARTED if request.method == "POST" else httpx.Response(200, json=CALL)
