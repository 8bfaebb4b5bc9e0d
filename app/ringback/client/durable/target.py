"""What a durable caller needs of a target: a Ringback service, or one MCP server."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRequest

RETRY_SECONDS_FIRST: Final = 0.5
RETRY_SECONDS_MAX: Final = 30.0
"""The pause before a target that cannot be reached is tried again doubles between these."""


class CallTarget(Protocol):
    @property
    def url(self) -> str:
        """Names the target in handles, without credentials and query."""
        ...

    @property
    def may_repeat_start(self) -> bool:
        """Whether a start whose outcome is unknown may be repeated, because the target runs a key only once."""
        ...

    def check_request(self, request: CallRequest) -> None:
        """Raise `ValueError` for options that this target does not have."""
        ...

    async def run_call(self, call: LocalCall) -> None:
        """Start the call if it has no position, then follow it until it ends or asks for input.

        Saves what finds the call again before it waits for anything, and sets `call.started`. A target that cannot be reached
        is tried again for ever. Raises `CallNotStarted`, `NotRejoinable`, or the error that a repetition cannot repair.
        """
        ...

    async def cancel_call(self, call: LocalCall) -> None:
        """Ask the target to cancel the call; if it has ended, save its end."""
        ...

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer open requests for input, or save the answers for `run_call`."""
        ...

    async def aclose(self) -> None: ...


def retry_seconds(failures: int) -> float:
    """The pause after `failures` failures in a row, at least one."""
    return min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** min(failures - 1, 16))


def without_secrets(url: str) -> str:
    """The URL without user info, query and fragment."""
    scheme, separator, rest = url.partition("://")
    rest = rest.partition("#")[0].partition("?")[0].rstrip("/")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
