"""The interfaces of drivers. A driver carries one call over a session to its end and returns its completion.

One driver object runs many calls at once, so it holds no state. What the next process must know goes into the call's handle,
which `CallContext.save_handle` makes durable before the driver waits for anything.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ringback.domain.call import Call, Handle, Progress, ServerFingerprint
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.principal import Principal
from ringback.upstreams.session_ports import CallSessionPort


class LeaseLost(Exception):
    """Another process holds the lease of this call, or may hold it: the holder here stops and writes nothing."""


class CallContext(Protocol):
    """What a driver may do to its call.

    Each write checks the lease and is durable when it returns; it raises `LeaseLost` without the lease. While the store is
    unavailable it retries for as long as the lease is trusted.
    """

    @property
    def call(self) -> Call:
        """The call as this context last wrote or read it."""
        ...

    def enter_server(self, fingerprint: ServerFingerprint | None) -> None:
        """Handles that are saved from now on belong to the server with this fingerprint."""
        ...

    async def report_progress(self, progress: Progress) -> None:
        """Publish progress. The newest is stored at an interval; this never fails."""
        ...

    async def save_handle(self, handle: Handle | None) -> None:
        """Store what finds the call again. None: no process can go on with the call until the next handle is saved."""
        ...

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the upstream's open questions: `{method, params}` by the upstream's own keys.

        New questions make the call `input_required` and notify its webhooks. Questions that are missing here are withdrawn;
        without any the call is `working` again. A question whose answer waits to be sent does not count as new.
        Raises `ValueError` for too many questions or for a kind of input that was not offered.
        """
        ...

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        """Answers to send upstream, by the upstream's keys. Empty after the timeout or on a cancellation."""
        ...

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        """Remove answers that the upstream has received from the call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCall:
    """The upstream waits for answers and holds nothing open, so no process runs the call until the answers are there."""

    handle: Handle
    input_requests: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """As in `CallContext.request_input`."""


@dataclass(frozen=True, slots=True)
class RefusedForLogin:
    """The upstream refused a request of the call because the owner of its credentials has to sign in."""

    tokens_version: int | None
    """As in `LoginRequired`."""


class Driver(Protocol):
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        """Run `context.call` to its end: from its handle if it has one, else from the start.

        Cancelling this task means that this process stops running the call. With a saved handle the upstream must not notice;
        without one, the request is abandoned, which cancels it upstream. May raise `RequestNotSent` when the call has a
        handle: the call then goes on in the next session. Raises `LoginRequired` if the upstream refused a request for want of
        a login, and if the call has no handle, that was its tools/call: the tool has not run.
        """
        ...

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        """Send a cancel request while `run_call` goes on. May be repeated.

        Raises `RequestFailed`, or `UpstreamUnreachable` from another session of the upstream, if it is not delivered.
        Returns the completion if the request ends the call: `run_call` is then cancelled. Returns None if the upstream reports
        the end itself, which may be a result: `run_call` goes on, and its `wait_for_answers` returns at once so that it polls.
        """
        ...


class BoundDriverPort(Protocol):
    """A live session with the driver of a call, as the execution uses it."""

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall: ...

    async def cancel_call(self, call: Call) -> CallCompletion | None: ...


class CallSessionProvider(Protocol):
    """What the runner needs of the upstreams. `selection.BoundDriverProvider` implements it."""

    def get_capacity(self) -> Mapping[str, int]:
        """How many calls each upstream runs at once."""
        ...

    def has_open_session(self, call: Call) -> bool:
        """Whether `open_call_session` would return a session for the call without waiting."""
        ...

    def get_login_owner(self, call: Call) -> Principal:
        """Whose tokens requests of this call carry."""
        ...

    def open_call_session(self, call: Call) -> AbstractAsyncContextManager[BoundDriverPort]:
        """A live session for the call. Waits for the upstream; raises `UpstreamUnreachable` when the wait is over.

        Raises `UpstreamLoginRequired` at once if the upstream opens no session without a login, and `ServerChanged` if the call
        has a handle of another server than the upstream's present one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDriver:
    session: CallSessionPort
    driver: Driver

    async def run_call(self, context: CallContext) -> CallCompletion | ParkedCall:
        context.enter_server(self.session.server_fingerprint)
        return await self.driver.run_call(self.session, context)

    async def cancel_call(self, call: Call) -> CallCompletion | None:
        return await self.driver.cancel_call(self.session, call)
