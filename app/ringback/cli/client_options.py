"""The options --url and --api-key of the client commands, and how they run with a client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer

from ringback.cli.embedded_service.own_service import find_own_service, start_configured_service
from ringback.cli.output import EXIT_INTERRUPTED
from ringback.client import ClientError, RingbackClient

T = TypeVar("T")

URL_DEFAULT: Final = "http://127.0.0.1:8090"
ALL_PRINCIPALS: Final = "*"
"""As the service spells it (`domain.principal`)."""


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
WaitSeconds = Annotated[
    float | None,
    typer.Option("--wait-seconds", min=0, help="Stop waiting after this time, with exit code 75. Default: never."),
]
WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's id, wh_…")]

ForPrincipal = Annotated[
    str | None,
    typer.Option("--principal", metavar="NAME", help="For an operator (scope admin): this principal's, not yours."),
]
ForAllPrincipals = Annotated[
    bool, typer.Option("--all-principals", help="For an operator (scope admin): of all owners.")
]


ONLY_OWN_PRINCIPAL: Final = "This is of your key's own principal only. Of all: ringback {command} --all-principals"
"""For a key with the scope `admin`, whose user may expect to see all principals."""


def choose_principal(principal: str | None, all_principals: bool) -> str | None:
    """What the service gets as `principal`: a name, `*` for all, or nothing for the owner of the key."""
    if principal is not None and all_principals:
        raise typer.BadParameter("give either --principal NAME or --all-principals")
    return ALL_PRINCIPALS if all_principals else principal


def columns_for(principal: str | None, columns: Sequence[str]) -> Sequence[str]:
    """The columns of a table; an operator's has the owner after the id."""
    return columns if principal is None else (columns[0], "principal", *columns[1:])


async def collect_first(items: AsyncIterator[T], *, limit: int) -> list[T]:
    """The first `limit` items. No page after them is requested."""
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == limit:
            break
    return found


def choose_service(url: str, api_key: str | None) -> tuple[str, str | None]:
    """The URL and the key to use: the user's own service's if nothing else is chosen and none runs at the default URL."""
    if url.rstrip("/") != URL_DEFAULT or api_key or (own := find_own_service(URL_DEFAULT)) is None:
        return url, api_key
    return own.url, own.api_key


def start_own_service(url: str, api_key: str | None) -> None:
    """Start the user's own service for a command that waits for what it does, if nothing else is chosen."""
    if url.rstrip("/") == URL_DEFAULT and not api_key:
        start_configured_service()


async def leaves_out_others(client: RingbackClient, *, principal: str | None, api_key: str | None) -> bool:
    """Whether a key with the scope `admin` lists its own principal only. False if that cannot be read: a text depends on it."""
    if principal is not None or not api_key:
        return False
    with suppress(ClientError):
        return (await client.insights(hours=1)).leaves_out_others
    return False


def create_client(url: str, api_key: str | None, principal: str | None = None) -> RingbackClient:
    url, api_key = choose_service(url, api_key)
    try:
        return RingbackClient(url, api_key=api_key or None, principal=principal)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def run_with_client(
    url: str,
    api_key: str | None,
    operation: Callable[[RingbackClient], Awaitable[T]],
    *,
    principal: str | None = None,
) -> T:
    """Run one operation with a client, and return its result. Ctrl-C ends the command without a traceback."""

    async def run() -> T:
        async with create_client(url, api_key, principal) as client:
            return await operation(client)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
