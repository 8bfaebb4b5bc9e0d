"""The receiver as an ASGI application, without a framework."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from ringback.receiver.callback_inbox import CallbackInbox
from ringback.receiver.deduplicator import Deduplicator
from ringback.receiver.envelopes import Callback, Gap, MalformedBody, Terminated, Verification, parse
from ringback.signing.standard_webhooks import VerificationError, check_secret, verify

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SecretSource = Sequence[str] | Callable[[str | None], Sequence[str]]
"""The accepted secrets (`whsec_…`) or public keys (`whpk_…`): fixed ones, or a function of the subscription id that returns
none for an unknown id."""

BODY_BYTES_MAX: Final = 262_144 + 16_384
"""The largest body (mcp-events §8), plus 16 KiB for senders that count only their payload."""

DEDUPLICATED_MESSAGES_MAX: Final = 10_000
"""Messages whose repetition is recognised: about 3 MB (measured)."""

INBOX_CALLBACKS_MAX: Final = 1_000
"""Callbacks kept for later calls of `wait_for`: about 1 MB, because a thin callback has about 1 KB."""

SUBSCRIPTION_HEADER: Final = "x-mcp-subscription-id"

log = logging.getLogger(__name__)


class _RejectedRequest(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class _Disconnected(Exception):
    """The sender closed the connection before its body was complete, so there is no response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReceiverResponse:
    status: int
    content: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


async def _ignore(_: object) -> None: ...


def _current_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the library's default clock; `clock` replaces it


class ReceiverApp:
    """Verifies callbacks, drops duplicates, answers challenges and calls the handlers. For one event loop.

    `on_callback` is awaited before the sender gets 204. If it raises, the sender gets 500 and retries. `on_notice` handles gap
    and terminated envelopes in the same way.
    """

    def __init__(
        self,
        secrets: SecretSource,
        *,
        on_callback: Callable[[Callback], Awaitable[None]] = _ignore,
        on_notice: Callable[[Gap | Terminated], Awaitable[None]] = _ignore,
        clock: Callable[[], datetime] = _current_time,
    ) -> None:
        self._get_secrets = secrets if callable(secrets) else _fixed_secrets(secrets)
        self._on_callback = on_callback
        self._on_notice = on_notice
        self._clock = clock
        self._deduplicator = Deduplicator(capacity=DEDUPLICATED_MESSAGES_MAX)
        self._inbox = CallbackInbox(capacity=INBOX_CALLBACKS_MAX)

    async def wait_for(self, *, correlation_id: str, timeout_seconds: float) -> Callback:
        """The next callback with this correlation id, or one that arrived earlier; raises TimeoutError.

        Each callback is returned once, after `on_callback` has returned. Only the newest `INBOX_CALLBACKS_MAX` earlier
        callbacks are kept, so read the call when the time is over.
        """
        return await self._inbox.wait_for_callback(correlation_id, timeout_seconds=timeout_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # servers take the error as "no lifespan support"
            raise ValueError("ReceiverApp supports HTTP only.")
        try:
            response = await self._respond(scope, receive)
        except _RejectedRequest as rejected:
            response = _error_response(rejected.status, rejected.reason)
        except _Disconnected:
            return
        await _send_response(response, send)

    async def _respond(self, scope: Scope, receive: Receive) -> _ReceiverResponse:
        if scope["method"] != "POST":
            return _error_response(405, "Callbacks are sent with POST.", allow="POST")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _read_body(receive)
        subscription_id = headers.get(SUBSCRIPTION_HEADER)
        try:
            message = verify(headers, body, self._get_secrets(subscription_id), now=self._clock())
            envelope = parse(body, subscription_id=subscription_id)
        except (VerificationError, MalformedBody) as error:
            return _error_response(400, str(error))
        if isinstance(envelope, Verification):
            return _ReceiverResponse(status=200, content={"challenge": envelope.challenge})
        return await self._handle_once(message.message_id, envelope)

    async def _handle_once(self, message_id: str, envelope: Callback | Gap | Terminated) -> _ReceiverResponse:
        try:
            await self._deduplicator.run_unless_handled(
                (envelope.subscription_id, message_id), lambda: self._dispatch_envelope(envelope)
            )
        except Exception:  # the boundary to the owner's code: the sender retries after any exception
            log.exception("The handler of message %s failed; the sender will retry", message_id)
            return _error_response(500, "The receiver could not handle this now.")
        return _ReceiverResponse(status=204)

    async def _dispatch_envelope(self, envelope: Callback | Gap | Terminated) -> None:
        match envelope:
            case Callback():
                await self._on_callback(envelope)
                self._inbox.put_callback(envelope)
            case Gap() | Terminated():
                await self._on_notice(envelope)
            case _:
                assert_never(envelope)


def _fixed_secrets(secrets: Sequence[str]) -> Callable[[str | None], Sequence[str]]:
    """Fixed secrets, checked now, so that an invalid one fails at the start and not at the first callback."""
    if not secrets:
        raise ValueError("A receiver needs at least one webhook secret.")
    for secret in secrets:
        check_secret(secret)
    return lambda _: secrets


async def _read_body(receive: Receive) -> bytes:
    """Read the body, and stop at `BODY_BYTES_MAX` whatever length the sender announces."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise _RejectedRequest(413, f"A callback has at most {BODY_BYTES_MAX} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


def _error_response(status: int, reason: str, **headers: str) -> _ReceiverResponse:
    return _ReceiverResponse(status=status, content={"reason": reason}, headers=headers)


async def _send_response(response: _ReceiverResponse, send: Send) -> None:
    body = b"" if response.content is None else json.dumps(response.content).encode()
    headers = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    if response.content is not None:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
