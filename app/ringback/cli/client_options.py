"""The options --url and --api-key of the client commands, and how they run with a client."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer

from ringback.cli.output import EXIT_INTERRUPTED
from ringback.client import RingbackClient

T = TypeVar("T")

URL_DEFAULT: Final = "http://127.0.0.1:8090"


class Outcome(StrEnum):
    """How a call ends, for the options that filter by it. Typer has no lists of literals."""

    RESULT = "result"
    TOOL_ERROR = "tool_error"
    UPSTREAM_ERROR = "upstream_error"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


Url = Annotated[str, typer.Option("--url", envvar="RINGBACK_URL", help="The URL of the service.")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="RINGBACK_API_KEY", help="Your API key. Not needed if authentication is off."),
]


def create_client(url: str, api_key: str | None) -> RingbackClient:
    try:
        return RingbackClient(url, api_key=api_key or None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def run_with_client(url: str, api_key: str | None, operation: Callable[[RingbackClient], Awaitable[T]]) -> T:
    """Run one operation with a client, and return its result. Ctrl-C ends the command without a traceback."""

    async def run() -> T:
        async with create_client(url, api_key) as client:
            return await operation(client)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
