"""Forwards callbacks to a URL, signed as Ringback signs (Standard Webhooks)."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Final

import httpx

from ringback import __version__
from ringback.backoff import parse_retry_after
from ringback.cli.durable_listener.handlers import Failed, Handled, HandlerOutcome, ReceivedCallback, Refused
from ringback.cli.http_clients import refuse_cookies, remove_location
from ringback.signing.standard_webhooks import build_signed_headers, derive_message_id, is_message_id

CONNECT_SECONDS: Final = 3.0
"""The service's own limit for a connection to a receiver."""
RESPONSE_SECONDS: Final = 60.0
"""The receiver may acknowledge after its handler. The service gives an attempt 10 s; here no other delivery waits."""
ATTEMPT_SECONDS: Final = CONNECT_SECONDS + 2 * RESPONSE_SECONDS
"""For one attempt: its body may take as long as the response."""
FINAL_STATUSES: Final = frozenset({HTTPStatus.GONE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
"""Statuses after which Ringback does not repeat a delivery."""


class ForwardHandler:
    """Sends each callback to `url`. `subscription_id` and `secret` are the same after every restart."""

    def __init__(
        self,
        url: str,
        *,
        secret: str,
        subscription_id: str,
        http: httpx.AsyncClient,
        current_time: Callable[[], datetime],
    ) -> None:
        self._url = url
        self._secret = secret
        self._subscription_id = subscription_id
        self._http = http
        self._current_time = current_time

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        request = self._http.stream("POST", self._url, content=received.body, headers=self._build_headers(received))
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS), request as response:  # the body of the response is not read
                return _judge_response(response, now=self._current_time())
        except TimeoutError:  # httpx limits each read only
            return Failed(f"{self._url} did not respond within {ATTEMPT_SECONDS:g} s")
        except httpx.HTTPError as error:
            return Failed(f"{self._url} did not respond ({type(error).__name__})")

    def _build_headers(self, received: ReceivedCallback) -> dict[str, str]:
        is_signable = is_message_id(received.event_id)
        signed = build_signed_headers(
            [self._secret],
            message_id=received.event_id
            if is_signable
            else derive_message_id(self._subscription_id, received.event_id),
            timestamp=int(self._current_time().timestamp()),
            body=received.body,
        )
        return {
            **signed,
            "content-type": "application/json",
            "user-agent": f"Ringback/{__version__}",
            "x-mcp-subscription-id": self._subscription_id,
        }


def create_http_client() -> httpx.AsyncClient:
    """A client that follows no redirects, keeps no cookies and uses no proxy, as the service's sender."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS),
        trust_env=False,
        cookies=refuse_cookies(),
        event_hooks={"response": [remove_location]},
    )


def _judge_response(response: httpx.Response, *, now: datetime) -> HandlerOutcome:
    if response.is_success:
        return Handled()
    reason = f"{response.request.url} responded with {response.status_code}"
    if response.status_code in FINAL_STATUSES:
        return Refused(reason)
    asked = parse_retry_after(response.headers.get("retry-after"), now=now)
    return Failed(reason, retry_after_seconds=asked or 0.0)
