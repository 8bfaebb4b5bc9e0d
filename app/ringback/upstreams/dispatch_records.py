"""The port through which a transport records that a tools/call waits for its token, or was refused for it.

    the token expires soon ──┐
    tools/call ──▶ 401 ──────┴──▶ `record_unsent` ──▶ refresh ──▶ `record_dispatch` ──▶ tools/call
                                             └──────▶ no token: the call waits for a login

A refresh of tokens takes seconds. If the process dies meanwhile, the store says that the tool of this call did not run.
"""

from contextvars import ContextVar
from typing import Final, Protocol

DISPATCH_RECORD: Final = "ringback/dispatch_record"
"""The extension of a POST with the `DispatchRecord` of its tools/call. Other requests of a call have none."""


class DispatchRecord(Protocol):
    """Whether the store says that a call was sent. Both methods may raise; the request is then not sent."""

    async def record_unsent(self) -> None:
        """Commit that the tools/call is not sent yet, or was refused unread. Call it before anything that takes long."""
        ...

    async def record_dispatch(self) -> None:
        """Call it before each tools/call goes out. It commits the dispatch after `record_unsent`."""
        ...


_RECORD: Final[ContextVar[DispatchRecord | None]] = ContextVar("ringback_dispatch_record", default=None)
"""The record of the call in whose context a request is made. Over HTTP, the SDK sends a request in its context."""


def enter_dispatch_record(record: DispatchRecord) -> None:
    """Let the transports record what becomes of the tools/call requests of this task from now on."""
    _RECORD.set(record)


def get_dispatch_record() -> DispatchRecord | None:
    return _RECORD.get()


def leave_dispatch_record() -> None:
    """Forget the call in whose context this task was started, for a session that outlives the call."""
    _RECORD.set(None)
