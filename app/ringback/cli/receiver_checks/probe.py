"""Sends one request to a receiver, and reads the answer within bounds."""

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import httpx

from ringback.cli.http_clients import refuse_cookies, remove_location
from ringback.client.arguments import is_on_this_machine
from ringback.signing.standard_webhooks import build_signed_headers, sign_message

ANSWER_BYTES_MAX: Final = 65_536
"""As much of an answer as a service reads (mcp-events §8, SSRF: cap response bytes)."""
ANSWER_SECONDS: Final = 15.0
"""How long one answer may take, with its body. A sender waits 5 to 10 seconds; the rest shows that it came late."""
SUBSCRIPTION_HEADER: Final = "X-MCP-Subscription-Id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The receiver's answer, or why there is none."""

    status: int | None
    """None if no status arrived."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    """At most `ANSWER_BYTES_MAX` bytes."""
    seconds: float
    failure: str = ""
    """Why no status arrived, in one word."""

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - the class of a status

    @property
    def is_refused(self) -> bool:
        """A 4xx: the receiver says that the request is wrong, and has not failed itself."""
        return self.status is not None and 400 <= self.status < 500  # noqa: PLR2004 - the class of a status

    @property
    def is_server_error(self) -> bool:
        """A 5xx, or no answer at all."""
        return self.status is None or self.status >= 500  # noqa: PLR2004 - the class of a status

    @property
    def document(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def __str__(self) -> str:
        return f"no answer ({self.failure})" if self.status is None else f"HTTP {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverProbe:
    """The receiver under test. `secret` is one that it accepts."""

    http: httpx.AsyncClient
    url: str
    secret: str = field(repr=False)
    subscription_id: str
    """In the header of every request, unless a check needs another one."""
    event_name: str
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    new_id: Callable[[], str]
    """Random letters and digits: every message of a run has an id of its own."""
    answer_seconds: float = ANSWER_SECONDS

    def make_event(self, event_id: str | None = None, **changed: Any) -> dict[str, Any]:
        """An event as a service sends it. `changed` replaces members; None removes one."""
        event = {
            "eventId": event_id or f"evt_{self.new_id()}",
            "name": self.event_name,
            "timestamp": self.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "cursor": f"check-{self.new_id()}",
            "data": {"call_id": f"call_{self.new_id()}", "status": "completed", "outcome": "result", "check": True},
        }
        return {name: value for name, value in (event | changed).items() if value is not None}

    async def post_event(self, event: Mapping[str, Any] | None = None, **sent: Any) -> Answer:
        """Post the event under its own id. `sent` as in `post_signed`."""
        event = event or self.make_event()
        options: dict[str, Any] = {"message_id": str(event["eventId"]), **sent}
        return await self.post_signed(event, **options)

    async def post_envelope(self, envelope: Mapping[str, Any], **sent: Any) -> Answer:
        """Post a control envelope under an id of its own."""
        options: dict[str, Any] = {"message_id": f"msg_{envelope['type']}_{self.new_id()}", **sent}
        return await self.post_signed(envelope, **options)

    async def post_signed(
        self,
        body: bytes | Mapping[str, Any],
        *,
        message_id: str | None = None,
        secrets: Sequence[str] | None = None,
        age_seconds: float = 0.0,
        subscription_id: str | None = None,
        changed: Mapping[str, str | None] | None = None,
        sent_body: bytes | AsyncIterable[bytes] | None = None,
    ) -> Answer:
        """Sign the body and post it. `changed` replaces headers after signing, None removes one; `sent_body` the body."""
        content = encode(body)
        message_id = message_id or f"evt_{self.new_id()}"
        timestamp = int(self.now().timestamp() - age_seconds)
        headers: dict[str, str | None] = {
            "content-type": "application/json",
            SUBSCRIPTION_HEADER: subscription_id or self.subscription_id,
            **build_signed_headers(secrets or [self.secret], message_id=message_id, timestamp=timestamp, body=content),
            **(changed or {}),
        }
        return await self.send("POST", content if sent_body is None else sent_body, headers)

    def sign(self, message_id: str, body: bytes, *, secret: str | None = None, timestamp: int | None = None) -> str:
        """One signature, for checks that build the header themselves."""
        signed_at = int(self.now().timestamp()) if timestamp is None else timestamp
        return sign_message([secret or self.secret], message_id=message_id, timestamp=signed_at, body=body)

    async def send(
        self, method: str, body: bytes | AsyncIterable[bytes] | None, headers: Mapping[str, str | None]
    ) -> Answer:
        """Send the request, and read the answer. One that fails or takes too long is an answer without a status."""
        began = self.monotonic()
        given = {name: value for name, value in headers.items() if value is not None} | {"accept-encoding": "identity"}
        try:
            async with (
                asyncio.timeout(self.answer_seconds),
                self.http.stream(method, self.url, content=body, headers=given) as response,
            ):
                content = await _read_bounded(response)
                return Answer(
                    status=response.status_code,
                    headers=dict(response.headers),
                    body=content,
                    seconds=self.monotonic() - began,
                )
        except (httpx.HTTPError, TimeoutError) as error:
            return Answer(status=None, seconds=self.monotonic() - began, failure=type(error).__name__)


def create_http_client(user_agent: str, url: str) -> httpx.AsyncClient:
    """A client that keeps no cookies and does not read where a redirect leads, as no sender of callbacks does.

    It uses the proxies of the environment, unless the receiver is on this machine: a proxy would look for it on its own.
    """
    return httpx.AsyncClient(
        trust_env=not is_on_this_machine(url),
        timeout=ANSWER_SECONDS,
        headers={"user-agent": user_agent},
        cookies=refuse_cookies(),
        event_hooks={"response": [remove_location]},
        follow_redirects=False,
    )


def encode(body: bytes | Mapping[str, Any]) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


async def _read_bounded(response: httpx.Response) -> bytes:
    content = b""
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) >= ANSWER_BYTES_MAX:
            break
    return content[:ANSWER_BYTES_MAX]
