"""Calls on a Ringback service, over its REST API. The service runs the call; this process only waits for its events."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast

from pydantic import ValidationError

from ringback.client.arguments import check_header_value
from ringback.client.client import RingbackClient
from ringback.client.durable.clock import RETRY_BACKOFF
from ringback.client.durable.errors import CallNotStarted, StartUnknown
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRequest, Completion, RingbackPosition
from ringback.client.durable.target import without_secrets
from ringback.client.models import Call, Event, Progress
from ringback.client.options import CallbackOptions
from ringback.client.problems import (
    ConnectionFailed,
    Forbidden,
    Gone,
    Problem,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from ringback.client.resource_client import LONG_POLL_SPACING_SECONDS, WAIT_SECONDS_MAX

log = logging.getLogger(__name__)

_PROGRESS_EVENT: Final = "call.progress"
_REPEATABLE: Final = "The start may be repeated safely: join the handle."


class RingbackTarget:
    """A Ringback service. `client` is your own `RingbackClient`, which stays open."""

    may_repeat_start = True

    def __init__(self, url: str = "", *, api_key: str | None = None, client: RingbackClient | None = None) -> None:
        self._owns_client = client is None
        self._client = client or RingbackClient(url, api_key=api_key)
        self._has_answered = False
        """Whether this service has answered before: a page of a proxy then comes while it restarts."""
        self.url = without_secrets(self._client.base_url)

    def check_request(self, request: CallRequest) -> None:
        if request.upstream is None:
            raise ValueError(
                "A Ringback has several servers. Name one: request_call_tool(…, upstream='git'). If this URL is an MCP server "
                f"and no Ringback, say so: DurableCaller(McpTarget({self.url!r})), or give the URL with its path, such as /mcp."
            )
        check_header_value(request.idempotency_key, what="The idempotency key")

    async def aclose(self) -> None:
        if self._owns_client:
            await self._client.aclose()

    async def run_call(self, call: LocalCall) -> None:
        if call.record.position is None:
            await self._start_call(call)
        failures = 0
        while call.record.completion is None and not call.record.input_requests:
            try:
                await self._follow_call(call)
                failures = 0
            except (ConnectionFailed, Unavailable, QuotaExceeded, UnexpectedAnswer) as error:
                if not self._may_pass(error):
                    raise
                failures += 1
                if failures == 1:
                    log.warning("The call %s cannot be followed now, and is tried again: %s", call.handle.id, error)
                asked = getattr(error, "retry_after_seconds", None) or 0.0
                pause = max(RETRY_BACKOFF.pause_seconds(failures), asked)
                await call.clock.sleep(min(pause, RETRY_BACKOFF.longest_seconds))

    def _may_pass(self, error: Exception) -> bool:
        """Whether the same request may succeed later: not after a response that this client cannot read."""
        return not isinstance(error, UnexpectedAnswer) or (self._has_answered and error.status is not None)

    async def cancel_call(self, call: LocalCall) -> None:
        if call.record.position is None:
            await self._start_call(call)  # the start may have arrived; with its key it is the same call
        if (position := _get_position(call)) is not None:
            await self._save_call(call, await self._client.cancel(position.call_id))

    async def check_questions(self, call: LocalCall) -> None:
        if (position := _get_position(call)) is not None:
            with suppress(ConnectionFailed, Unavailable, QuotaExceeded, UnexpectedAnswer):
                await self._save_call(call, await self._client.call(position.call_id))

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        if (position := _get_position(call)) is not None:
            answered = await self._client.answer(position.call_id, responses)
            await self._save_call(call, answered.call)

    async def _start_call(self, call: LocalCall) -> None:
        request = call.record.request
        is_first, call.is_first_start = call.is_first_start, False
        try:
            started = await self._client.start_call(
                request.upstream or "",
                request.tool,
                request.arguments,
                client_session_id=request.client_session_id,
                correlation_id=request.correlation_id,
                idempotency_key=request.idempotency_key,
                callback=cast("CallbackOptions | None", request.callback),
                timeout_seconds=request.timeout_seconds,
                accepts_input=request.accepts_input or None,
            )
        except Gone:  # the call ran, and its result is not kept any more
            raise
        except Problem as problem:
            if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR or not (is_first or _knows_key(problem)):
                raise StartUnknown(f"{problem} {_REPEATABLE}", call.handle) from problem
            raise CallNotStarted(f"Ringback did not start the call: {problem.detail}") from problem
        except (ConnectionFailed, UnexpectedAnswer) as error:
            raise StartUnknown(f"{error} {_REPEATABLE}", call.handle) from error
        self._has_answered = True
        # The secret of the callback is not needed any more.
        await call.save(
            position=RingbackPosition(call_id=started.call.id), request=request.model_copy(update={"callback": None})
        )
        await self._save_call(call, started.call)

    async def _follow_call(self, call: LocalCall) -> None:
        """Wait for events of the call, and save what they say."""
        position = _get_position(call)
        if position is None:
            return
        found = await self._client.call(position.call_id)
        self._has_answered = True
        await self._save_call(call, found)
        cursor = position.events_cursor
        while call.record.completion is None and not call.record.input_requests:
            began = call.clock.monotonic()
            page = await self._client.poll_events(
                call_id=position.call_id, cursor=cursor, wait_seconds=WAIT_SECONDS_MAX
            )
            has_advanced, cursor = page.cursor != cursor, page.cursor
            if not (page.events and has_advanced):
                await call.clock.sleep(max(0.0, began + LONG_POLL_SPACING_SECONDS - call.clock.monotonic()))
            call.keep_position(position.model_copy(update={"events_cursor": cursor}))
            for event in page.events:
                if event.name == _PROGRESS_EVENT and (progress := _parse_progress(event)) is not None:
                    call.report_progress(progress)
            if page.truncated or any(event.name != _PROGRESS_EVENT for event in page.events):
                await self._save_call(call, await self._client.call(position.call_id))

    async def _save_call(self, call: LocalCall, found: Call) -> None:
        if found.progress is not None:
            call.report_progress(found.progress)
        if found.final:
            result = await self._client.result(found.id) if found.status == "completed" else None
            error = None if found.error is None else found.error.model_dump()
            await call.complete(Completion(outcome=found.outcome or found.status, result=result, error=error))
        elif found.input_requests != call.record.input_requests:
            await call.save(input_requests=dict(found.input_requests))


def _parse_progress(event: Event) -> Progress | None:
    """None for what is no progress: joins may leave out values, and one of them does not end them."""
    try:
        return Progress.model_validate(event.data.get("progress"))
    except ValidationError:
        return None


def _knows_key(problem: Problem) -> bool:
    """Whether the service has looked for a call with this idempotency key before it refused the request."""
    return not isinstance(problem, Unauthenticated | Forbidden | QuotaExceeded)


def _get_position(call: LocalCall) -> RingbackPosition | None:
    position = call.record.position
    return position if isinstance(position, RingbackPosition) else None
