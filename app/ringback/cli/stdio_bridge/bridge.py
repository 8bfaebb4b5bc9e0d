"""One task for each message of the client."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from ringback.cli.stdio_bridge.call_cancellation import cancel_lost_call, cancel_sent_request, may_start_call
from ringback.cli.stdio_bridge.client_output import ClientOutput
from ringback.cli.stdio_bridge.connection import ServiceConnection
from ringback.cli.stdio_bridge.endpoint import (
    SESSION_END_TIMEOUT_SECONDS,
    EndpointConfig,
    EndpointLocator,
    ServiceEndpoint,
)
from ringback.cli.stdio_bridge.forwarded_request import ForwardedRequest
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused, SessionUnknown
from ringback.cli.stdio_bridge.retries import RECONNECT_SECONDS, ReconnectSchedule, RetryLimits
from ringback.cli.stdio_bridge.server_requests import CANCELLED_METHOD
from ringback.cli.stdio_bridge.session_stream import SessionStream
from ringback.cli.stdio_bridge.unreadable_lines import build_line_error
from ringback.domain.clock import SystemClock
from ringback.protocol.question_ids import QUESTION_ID_PREFIX

log = logging.getLogger(__name__)

LAST_RESPONSES_SECONDS: Final = 1.0
"""For pending responses when standard input ends, so that the last line of a pipe gets its response. Clients that close
standard input allow two seconds for the exit."""

STARTED_SERVICE_LIMITS: Final = RetryLimits(first_contact_seconds=RECONNECT_SECONDS)
"""For a service that the bridge starts: its URL is not wrong, so a slow start is no other fault."""


async def run_bridge(config: EndpointConfig, locator: EndpointLocator | None = None) -> None:
    """Forward messages until standard input ends, then responses for up to `LAST_RESPONSES_SECONDS`."""
    try:
        async with AsyncExitStack() as stack:
            from_client, to_client = await stack.enter_async_context(stdio_server())
            stack.push(_end_after_closed_output)
            stack.push_async_callback(to_client.aclose)  # the SDK's writer ends when its last sender is closed
            endpoint = ServiceEndpoint(config, locator=locator)
            stack.push_async_callback(endpoint.aclose)
            service = ServiceConnection(
                endpoint, clock=SystemClock(), limits=STARTED_SERVICE_LIMITS if locator else RetryLimits()
            )
            bridge = StdioBridge(service, ClientOutput(lambda message: to_client.send(SessionMessage(message))))
            stack.push_async_callback(bridge.aclose)
            _end_session_on_signals(bridge)
            async with from_client:  # a stream that is collected open is a ResourceWarning
                async for message in from_client:
                    bridge.handle_line(message)
            await bridge.wait_for_last_responses()
    except* BrokenPipeError:
        pass  # the client has closed standard output


def _end_after_closed_output(
    kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
) -> None:
    """End this process if its client has closed standard output. A client that keeps standard input open would keep it.

    The SDK's writer then cancels what runs here. A normal exit would wait for the thread that reads standard input.
    """
    if kind is asyncio.CancelledError:
        os._exit(0)


def _end_session_on_signals(bridge: "StdioBridge") -> None:
    """On SIGTERM and SIGINT, end the session and then this process; a second signal ends it at once."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, lambda number=number: bridge.spawn(_end_process(bridge, number)))


async def _end_process(bridge: "StdioBridge", number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    await bridge.end_session()
    os.kill(os.getpid(), number)  # a normal exit would wait for the thread that reads standard input


@dataclass(slots=True)
class _RunningRequest:
    request: ForwardedRequest
    task: asyncio.Task[None]


class StdioBridge:
    def __init__(self, service: ServiceConnection, output: ClientOutput) -> None:
        self._service = service
        self._output = output
        self._requests: dict[RequestId, _RunningRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshake: asyncio.Task[None] | None = None
        """Sends the last message of the handshake that the client has sent; later messages wait for it."""
        self._stream: asyncio.Task[None] | None = None

    def handle_line(self, line: SessionMessage | Exception) -> None:
        """Handle a line of standard input; an exception stands for a line that is not a message."""
        if isinstance(line, SessionMessage):
            self.handle_message(line.message)
        else:
            self.spawn(self._output.send(build_line_error(line)))

    def handle_message(self, message: JSONRPCMessage) -> None:
        match message:
            case JSONRPCRequest():
                self._start_request(message)
            case JSONRPCNotification(method="notifications/initialized"):
                self._handshake = self.spawn(self._complete_handshake(message, self._handshake))
            case JSONRPCNotification(method=method) if method == CANCELLED_METHOD:
                self.spawn(self._cancel_request(message))
            case JSONRPCNotification():
                self.spawn(self._post_in_order(message, self._handshake))
            case _:
                if (answer := self._output.server_requests.resolve_answer(message)) is not None:
                    self.spawn(self._post_answer(answer))

    async def wait_for_last_responses(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_RESPONSES_SECONDS)

    async def aclose(self) -> None:
        """Drop what is not answered, and end the session."""
        running = [*self._tasks, *([self._stream] if self._stream else [])]
        for task in running:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*running, return_exceptions=True)
            await self.end_session()

    async def end_session(self) -> None:
        with anyio.move_on_after(SESSION_END_TIMEOUT_SECONDS, shield=True):
            await self._service.session.end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- requests --

    def _start_request(self, message: JSONRPCRequest) -> None:
        request = ForwardedRequest(message, self._service, self._output)
        running = _RunningRequest(request, self.spawn(self._run_request(request, self._handshake)))
        self._requests[message.id] = running
        if message.method == "initialize":
            self._handshake = running.task
        running.task.add_done_callback(lambda _: self._forget_request(message.id, running))

    def _forget_request(self, request_id: RequestId, running: _RunningRequest) -> None:
        if self._requests.get(request_id) is running:
            del self._requests[request_id]

    async def _run_request(self, request: ForwardedRequest, handshake: asyncio.Task[None] | None) -> None:
        await _wait_for(handshake)
        try:
            await request.run()
        except Exception:  # the boundary: a bug in one request must not leave its client waiting
            log.exception("bridge.request_failed", extra={"method": request.message.method})
            error = ErrorData(
                code=INTERNAL_ERROR, message="The bridge of Ringback has failed; its standard error says why."
            )
            await self._output.send(JSONRPCError(jsonrpc="2.0", id=request.message.id, error=error))

    async def _cancel_request(self, notification: JSONRPCNotification) -> None:
        request_id = (notification.params or {}).get("requestId")
        running = self._requests.get(request_id) if isinstance(request_id, int | str) else None
        if running is None:
            return
        request = running.request
        request.is_cancelled = True
        if request.is_sending and await cancel_sent_request(request, notification, self._service):
            if not request.is_modern:
                return  # the service responds to it
        elif (request.is_sending or request.may_have_arrived) and may_start_call(request.message):
            await cancel_lost_call(request, self._service)
        running.task.cancel()

    # -- notifications and answers --

    async def _complete_handshake(
        self, initialized: JSONRPCNotification, initialize: asyncio.Task[None] | None
    ) -> None:
        await _wait_for(initialize)  # a shell's pipe does not wait for the response that has the session
        await self._post(initialized)
        if await self._service.session.end_left_sessions() and self._stream is not None:
            self._stream.cancel()
            self._stream = None
        if self._stream is None and self._service.session.id is not None:
            stream = SessionStream(
                self._service.endpoint,
                self._service.session,
                self._service.create_retries(is_endless=True),
                output=self._output,
                clock=self._service.clock,
            )
            self._stream = asyncio.create_task(stream.run())

    async def _post_in_order(self, notification: JSONRPCNotification, handshake: asyncio.Task[None] | None) -> None:
        await _wait_for(handshake)
        await self._post(notification)

    async def _post_answer(self, answer: JSONRPCMessage) -> None:
        """Send an answer to a request of the service.

        Once, unless its id names one question of all time: after a failure the service may have another with the same id.
        """
        if isinstance(answer, JSONRPCResponse | JSONRPCError) and str(answer.id).startswith(QUESTION_ID_PREFIX):
            await self._post(answer)
            return
        with suppress(NoResponse, RequestRefused, SessionUnknown):
            await self._service.post_in_this_session(answer)

    async def _post(self, message: JSONRPCMessage) -> None:
        """Send a message that has no response; it is dropped if the service does not return in time."""
        retries = self._service.create_retries()
        with suppress(RequestRefused):
            while not await self._try_to_post(message, retries):
                pass

    async def _try_to_post(self, message: JSONRPCMessage, retries: ReconnectSchedule) -> bool:
        """Return whether it was sent, or is not to be sent again."""
        try:
            await self._service.post(message)
        except NoResponse as failure:
            return not await retries.pause_after(failure)
        return True


async def _wait_for(handshake: asyncio.Task[None] | None) -> None:
    if handshake is not None:
        await asyncio.wait([handshake])
