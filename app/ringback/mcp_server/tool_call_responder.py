"""The four responses to tools/call; the first that applies is sent.

    1  the call ends within the wait            its plain result, or the JSON-RPC error that it ended with
    2  it requests input within the wait        InputRequiredResult, or elicitation/create on the waiting stream
    3  the client supports tasks                a task: after the grace time, at once in 2025-11-25, and at once if the upstream
                                                itself made a task
    4  the wait is over (`wait_windows`)        a pending result; also if the call has ended, and its client has not read
                                                other large responses (`services.limits.unread_responses`)

The call continues in every case.
"""

import asyncio
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CallOutcome, failed_completion, is_own_error
from ringback.domain.errors import StoreUnavailable
from ringback.domain.login_waits import awaits_login
from ringback.domain.upstreams import PendingForm
from ringback.mcp_server import meta
from ringback.mcp_server.call_text import render_failure_advice
from ringback.mcp_server.cancellation import mark_call_unattended
from ringback.mcp_server.elicitation import CallElicitation, answers_login, can_elicit, is_upstream_task
from ringback.mcp_server.event_source import EventSources
from ringback.mcp_server.gateway import Gateway, Result, TaskResponder
from ringback.mcp_server.known_clients import accepts_resource_link
from ringback.mcp_server.pending_results import build_pending_result
from ringback.mcp_server.progress_relay import ProgressRelay, get_log_level
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.single_responses import ATTEND_AFTER_SECONDS, note_wait
from ringback.mcp_server.wait_windows import WaitDeadline, WaitWindow
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.services.calls.attended_waits import AttendedWait
from ringback.services.limits.unread_responses import PARSED_COPIES, has_memory_for
from ringback.waits import LateHelper

STORED_PROGRESS_POLL_SECONDS: Final = 1.0
"""How often to read progress that another process has stored, in seconds; that process stores it at most as often."""
_CANCELLED_ERROR: Final = failed_completion(CallOutcome.CANCELLED, "The call was cancelled.")


class ToolCallResponder:
    def __init__(self, gateway: Gateway, *, elicitation: CallElicitation) -> None:
        self._gateway = gateway
        self._elicitation = elicitation
        self._event_sources = EventSources(gateway)

    async def respond(
        self, context: RequestContext, call: Call, task_responder: TaskResponder | None, window: WaitWindow
    ) -> Result:
        """With a `task_responder`, the window is its grace time."""
        with self._gateway.calls.attend(call) as attended:
            if task_responder is not None and task_responder.responds_immediately:
                return await task_responder.create_task_result(context, call)
            return await self._wait_for_response(context, call, task_responder, window, attended)

    async def _wait_for_response(
        self,
        context: RequestContext,
        call: Call,
        task_responder: TaskResponder | None,
        window: WaitWindow,
        attended: AttendedWait,
    ) -> Result:
        note_wait(context.asgi_state, has_outcome=attended.has_outcome)
        wait = _ResponseWait(
            self._gateway,
            context,
            attended,
            task_responder,
            window,
            elicitation=self._elicitation,
            event_sources=self._event_sources,
        )
        log_level = get_log_level(context)
        relay = LateHelper(lambda: wait.progress_relay.relay_notifications(notifications))
        disconnect_watch = LateHelper(lambda: self._mark_at_disconnect(context, call))

        def start_helpers() -> None:
            relay.start()
            disconnect_watch.start()

        with self._gateway.call_notifications.subscribe_call(
            call.id, log_level=log_level, on_notification=start_helpers
        ) as notifications:
            async with relay, disconnect_watch:
                # With the first notification, or soon: a call that ends before both needs no helper.
                timer = asyncio.get_running_loop().call_later(ATTEND_AFTER_SECONDS, start_helpers)
                try:
                    return await wait.wait_for_response(call)
                except StoreUnavailable:  # it would say that nothing was started
                    return await wait.respond_unfinished(call)
                finally:
                    timer.cancel()

    async def _mark_at_disconnect(self, context: RequestContext, call: Call) -> None:
        await context.request_closed.wait()
        await mark_call_unattended(self._gateway, context, call.id)


class _ResponseWait:
    def __init__(
        self,
        gateway: Gateway,
        context: RequestContext,
        attended: AttendedWait,
        task_responder: TaskResponder | None,
        window: WaitWindow,
        *,
        elicitation: CallElicitation,
        event_sources: EventSources,
    ) -> None:
        self._gateway = gateway
        self._context = context
        self._attended = attended
        self._event_sources = event_sources
        self._task_responder = task_responder
        self._elicitation = elicitation
        self._deadline = WaitDeadline(window, gateway.clock)
        self._login_shown = context.is_modern and answers_login(context)
        """Whether the client has answered the request to sign in. The answer only says that its user has read the request."""
        self._unannounced_login: Call | None = None
        """The call when a legacy client got the request to sign in; None after the notification that it is done."""
        self.progress_relay = ProgressRelay(context, on_progress_sent=self._deadline.extend)

    async def wait_for_response(self, call: Call) -> Result:
        self._deadline.reset()
        while True:
            call, stored_result = await self._wait_for_change(call)
            if self._task_responder is not None and is_upstream_task(call):
                break
            if call.is_final:
                if not self._has_memory_for(stored_result):
                    break
                return self._respond_with_end(call, stored_result)
            if call.status is CallStatus.INPUT_REQUIRED and not self._waits_for_login(call):
                response = await self._request_input(call)
                if isinstance(response, dict):
                    return response
                if response is None:
                    break
                call = response
            elif self._is_deadline_passed():
                break
        return await self.respond_unfinished(call)

    async def respond_unfinished(self, call: Call) -> Result:
        """A task or a pending result. Neither needs the store, which may be unavailable."""
        if self._task_responder is not None:
            return await self._task_responder.create_task_result(self._context, call)
        return await self._event_sources.add_to_meta(await self._build_pending_result(call), call)

    async def _request_input(self, call: Call) -> Call | Result | None:
        """The call after its questions are answered, or the response that asks them.

        None when this client cannot be asked, or does not answer.
        """
        if not can_elicit(self._context, call.input_requests.values()):
            return None
        if self._context.is_modern:
            updated = await self._elicitation.apply_early_responses(self._context, call)
            return self._elicitation.build_input_required_result(self._context, call) if updated is None else updated
        if not await self._elicitation.elicit_all(self._context, call):
            return None
        if awaits_login(call):
            self._login_shown, self._unannounced_login = True, call
        self._deadline.reset()
        current = await self._gateway.calls.get_for_waiting(self._context.caller, call.id)
        await self._announce_login(current)
        return current

    async def _wait_for_change(self, call: Call) -> tuple[Call, bytes | None]:
        """The call after its status changes or the poll interval passes; at once when it requests input."""
        if call.status is CallStatus.INPUT_REQUIRED and not self._waits_for_login(call):
            return call, None
        timeout_seconds = min(self._deadline.count_seconds_left(), STORED_PROGRESS_POLL_SECONDS)
        current, stored_result = await self._gateway.calls.wait_for_call(
            self._context.caller, call, wait_seconds=timeout_seconds, until_final=False
        )
        await self.progress_relay.relay_stored_progress(current)
        await self._announce_login(current)
        return current, stored_result

    async def _announce_login(self, current: Call) -> None:
        if self._unannounced_login is not None and not awaits_login(current):
            await self._elicitation.announce_login(self._context, self._unannounced_login)
            self._login_shown, self._unannounced_login = False, None

    def _respond_with_end(self, call: Call, stored_result: bytes | None) -> Result:
        self._attended.acknowledge_with_response(self._context.asgi_state, call)
        return build_call_result(call, stored_result)

    def _has_memory_for(self, stored_result: bytes | None) -> bool:
        """False if this principal has left too much unread: then the client gets the result when it asks for it."""
        size = PARSED_COPIES * len(stored_result or b"")
        return has_memory_for(self._context.asgi_state, self._context.caller.principal, size)

    def _waits_for_login(self, call: Call) -> bool:
        """Whether nothing but a login is open, which the client has shown to its user."""
        return self._login_shown and set(call.input_requests) == {LOGIN_REQUEST_KEY}

    def _is_deadline_passed(self) -> bool:
        return self._gateway.lifecycle.shutdown_event.is_set() or not self._deadline.count_seconds_left()

    async def _build_pending_result(self, call: Call) -> Result:
        upstreams = {info.name: info for info in self._gateway.catalog.list_upstreams(call.principal)}
        return build_pending_result(
            call,
            upstreams.get(call.upstream),
            has_resource_link=accepts_resource_link(
                self._context.client_name, self._context.sdk_context.protocol_version
            ),
            is_error=self._gateway.catalog.get_tool_config(call.upstream, call.tool).pending is PendingForm.ERROR,
            is_paused=await self._gateway.upstream_controls.is_paused(call),
        )


def build_call_result(call: Call, stored_result: bytes | None) -> Result:
    """The result of the upstream; raises the error that the call ended with.

    An error of Ringback's own also says which call it is about and what to do now: no pending result has said so.
    """
    if stored_result is not None:
        result: dict[str, Any] = jsontext.loads(stored_result)
        return meta.with_call_meta(result, call)
    error = call.error or _CANCELLED_ERROR.error or {}
    if not is_own_error(error, call.outcome):
        raise MCPError(error["code"], error["message"], error.get("data"))
    advice = render_failure_advice(call)
    raise MCPError(error["code"], f"{error['message']} {advice}", {**error["data"], "call_id": call.id})
