"""One request of the client, until its response.

    send ──▶ response                                       forward it
      │  └─▶ RequestRefused                                 forward the error
      ├────▶ SessionUnknown   begin a new session, send     (legacy)
      └────▶ NoResponse       pause, send again             until its time is over, then an error that says what to do

In a legacy session a request is sent again under another id, because the service may still process the first one.
"""

import secrets
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from ringback.cli.stdio_bridge.client_output import ClientOutput
from ringback.cli.stdio_bridge.connection import ServiceConnection
from ringback.cli.stdio_bridge.event_stream import STREAM_METHOD, EventStreamPosition
from ringback.cli.stdio_bridge.request_headers import read_modern_version
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused, response_ended_early
from ringback.domain.meta import IDEMPOTENCY_KEY_META_KEY
from ringback.protocol.cancel_keys import CANCEL_KEY_HEADER

LISTEN_METHOD: Final = "subscriptions/listen"
_PROGRESS_METHOD: Final = "notifications/progress"
ACKNOWLEDGED_METHOD: Final = "notifications/subscriptions/acknowledged"
_LIST_CHANGED_METHODS: Final[Mapping[str, str]] = {
    f"{kind}ListChanged": f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources", "events")
}
KEY_BYTES: Final = 16
"""128 random bits: no two requests have the same key, and no client can guess another's."""


class ForwardedRequest:
    def __init__(self, request: JSONRPCRequest, service: ServiceConnection, output: ClientOutput) -> None:
        self.message = add_idempotency_key(request)
        self.is_modern = read_modern_version(request) is not None
        self.sent_id: RequestId = request.id
        """The id under which it was sent last."""
        self.is_sending = False
        """Whether it is on its way to the service, or the service processes it."""
        self.may_have_arrived = False
        """Whether an earlier attempt may have arrived."""
        self.is_cancelled = False
        """Whether the client has cancelled it. Then it is not sent again."""
        is_modern_call = self.is_modern and request.method == "tools/call"
        self.cancel_headers = {CANCEL_KEY_HEADER: _generate_key()} if is_modern_call else {}
        """The headers by which `ringback/cancelRequest` finds it."""
        self._service = service
        self._permits = service.find_permits(request)
        self._output = output
        self._event_stream = EventStreamPosition(request) if request.method == STREAM_METHOD else None
        self._retries = service.create_retries(is_endless=request.method in {LISTEN_METHOD, STREAM_METHOD})
        self._attempts = 0
        self._is_acknowledged = False
        """Whether the client has the acknowledgement of its subscriptions/listen."""
        self._last_progress: float | None = None
        """The newest progress that the client has."""

    async def run(self) -> None:
        """Send it until there is a response for the client, and forward that."""
        try:
            response = await self._get_response()
        except RequestRefused as refused:
            response = JSONRPCError(jsonrpc="2.0", id=self.message.id, error=refused.error)
        if response is not None:
            await self._output.send(response)

    async def _get_response(self) -> JSONRPCResponse | JSONRPCError | None:
        while not self.is_cancelled:
            try:
                async with self._permits:
                    return await self._service.run_in_session(self._send)
            except NoResponse as failure:
                self.may_have_arrived |= failure.may_have_arrived
                await self._output.withdraw_requests(self)
                if not await self._retries.pause_after(failure):
                    return self._build_give_up_error(failure)
        return None

    async def _send(self) -> JSONRPCResponse | JSONRPCError:
        """One attempt; raises `NoResponse`, `RequestRefused` or `SessionUnknown`."""
        self._attempts += 1
        if self._attempts > 1 and not self.is_modern:
            self.sent_id = self._service.session.create_request_id()
        message = self.message if self._event_stream is None else self._event_stream.continue_request(self.message)
        request = message.model_copy(update={"id": self.sent_id})
        headers = self._service.get_headers(request) | self.cancel_headers
        self.is_sending = True
        try:
            async with (
                self._service.endpoint.post(request, headers) as response,
                aclosing(response.read_messages()) as received,
            ):
                self._retries.record_response()
                async for each in received:
                    if isinstance(each, JSONRPCResponse | JSONRPCError):
                        return self._read_response(each, response.session_id)
                    await self._forward(each)
            raise response_ended_early()
        finally:
            self.is_sending = False

    def _read_response(
        self, response: JSONRPCResponse | JSONRPCError, session_id: str | None
    ) -> JSONRPCResponse | JSONRPCError:
        if isinstance(response, JSONRPCResponse):
            self._service.headers.learn_from_response(self.message, response)
            self._service.session.learn_from_response(self.message, response, session_id)
            if self._event_stream is not None:
                response = self._event_stream.adapt_response(response)
        return response.model_copy(update={"id": self.message.id})

    async def _forward(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCNotification) and message.method == ACKNOWLEDGED_METHOD:
            if self._is_acknowledged:
                return await self._report_changes(message.params or {})
            self._is_acknowledged = True
        if isinstance(message, JSONRPCNotification) and not self._is_new(message):
            return None
        if self._event_stream is not None and isinstance(message, JSONRPCNotification):
            if (frame := self._event_stream.adapt_frame(message)) is None:
                return None
            message = frame
        return await self._output.forward(message, stream=self)

    def _is_new(self, notification: JSONRPCNotification) -> bool:
        """False for progress that an earlier attempt brought: MCP demands that progress increases for a token."""
        progress = (notification.params or {}).get("progress")
        if notification.method != _PROGRESS_METHOD or not isinstance(progress, int | float):
            return True
        if self._last_progress is not None and progress <= self._last_progress:
            return False
        self._last_progress = progress
        return True

    async def _report_changes(self, acknowledgement: Mapping[str, Any]) -> None:
        """Report that what a reopened stream subscribes to may have changed. The service itself repeats the state of tasks."""
        accepted: dict[str, Any] = acknowledgement.get("notifications") or {}
        meta: dict[str, Any] = {"_meta": acknowledgement.get("_meta", {})}
        uris: list[str] = accepted.get("resourceSubscriptions", [])
        for uri in uris:
            await self._output.notify("notifications/resources/updated", {"uri": uri, **meta})
        for flag, method in _LIST_CHANGED_METHODS.items():
            if accepted.get(flag):
                await self._output.notify(method, meta)

    def _build_give_up_error(self, failure: NoResponse) -> JSONRPCError:
        error = ErrorData(code=CONNECTION_CLOSED, message=f"{failure} {self._describe_next_step(failure)}")
        return JSONRPCError(jsonrpc="2.0", id=self.message.id, error=error)

    def _describe_next_step(self, failure: NoResponse) -> str:
        if not self.may_have_arrived:
            return (
                "The request was not sent. Start Ringback with 'ringback serve', or set its URL with --url or RINGBACK_URL. "
                "Then send the request again."
            )
        if (key := read_idempotency_key(self.message)) is None:
            if failure.is_hung:
                return "Send the request again then."
            return "The bridge has sent the request several times. Check that Ringback runs, then send it again."
        return (
            "The call may have been started, and then continues without you. When Ringback runs again, look for it with "
            f"ringback_list_calls, or call the tool again with _meta ringback/idempotencyKey '{key}': that starts no second "
            "call."
        )


def add_idempotency_key(request: JSONRPCRequest) -> JSONRPCRequest:
    """The request with a new key if it may start a call and has none."""
    params = request.params or {}
    meta = params.get("_meta", {})
    if request.method != "tools/call" or "requestState" in params or not isinstance(meta, dict):
        return request
    if IDEMPOTENCY_KEY_META_KEY in meta:
        return request
    own_meta = {**cast("dict[str, Any]", meta), IDEMPOTENCY_KEY_META_KEY: _generate_key()}
    return request.model_copy(update={"params": {**params, "_meta": own_meta}})


def read_idempotency_key(request: JSONRPCRequest) -> str | None:
    match request.params:
        case {"_meta": {"ringback/idempotencyKey": str() as key}}:
            return key
        case _:
            return None


def _generate_key() -> str:
    return secrets.token_urlsafe(KEY_BYTES)
