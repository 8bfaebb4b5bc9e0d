"""What a durable caller needs of a target: a Ringback service, or one MCP server."""

from collections.abc import Mapping
from typing import Any, Protocol

from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRequest


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

    async def check_questions(self, call: LocalCall) -> None:
        """Save which of the call's questions are still open, if the target knows it: others may have answered them.

        A target that cannot be reached changes nothing. Raises what ends a join.
        """
        ...

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer open requests for input, or save the answers for `run_call`."""
        ...

    async def aclose(self) -> None: ...


def without_secrets(url: str) -> str:
    """The URL without user info, query and fragment."""
    scheme, separator, rest = url.partition("://")
    rest = rest.partition("#")[0].partition("?")[0].rstrip("/")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
