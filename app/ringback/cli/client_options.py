"""The options that client commands share, and how a command runs with a client.

A command is `@client_command()`: it parses its options, runs one operation with a client, and prints what that returns.
The client, httpx and pydantic's models are imported for the operation: help and wrong arguments do without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from ringback.cli.embedded_service.own_service import find_own_service, has_stopped_service, start_configured_service
from ringback.cli.imports import lean_imports
from ringback.cli.option_groups import expand_option_group
from ringback.cli.output import EXIT_INTERRUPTED, EXIT_NOT_DONE, AlwaysJson, AsJson, ModelT, exit_on_errors, print_model
from ringback.client.problems import ClientError, ConnectionFailed, InvalidArgument

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ringback.client import RingbackClient

T = TypeVar("T")

URL_DEFAULT: Final = "http://127.0.0.1:8090"
NO_TEXT: Final = (
    "One of the arguments contains half a character: a byte that is no UTF-8, or half of a surrogate pair (\\ud83d). "
    "Nothing was sent."
)
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
WaitForInput = Annotated[
    bool,
    typer.Option(
        "--wait-for-input",
        help="Go on waiting when the tool requests input, as at a terminal. Without one, the command ends with exit code 3.",
    ),
]
CallId = Annotated[str, typer.Argument(metavar="CALL_ID", help="The call's id, call_….")]
UpstreamName = Annotated[
    str, typer.Argument(metavar="UPSTREAM", help="The upstream's name, as in `ringback upstreams`.")
]

SESSION_OPTIONS: Final = ("--session", "--client-session-id")
"""Both in each command: the first is shorter, and the second says what it is."""
CORRELATION_OPTIONS: Final = ("--correlation", "--correlation-id")

OfSession = Annotated[str | None, typer.Option(*SESSION_OPTIONS, help="Only calls of this client_session_id.")]
OfCorrelation = Annotated[str | None, typer.Option(*CORRELATION_OPTIONS, help="Only calls with this correlation_id.")]
OfUpstream = Annotated[str | None, typer.Option("--upstream", help="Only calls of this upstream.")]
OfTool = Annotated[str | None, typer.Option("--tool", help="Only calls of this tool.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the numbers, and change nothing.")]

ForPrincipal = Annotated[
    str | None,
    typer.Option("--principal", metavar="NAME", help="For an operator (scope admin): this principal's, not yours."),
]
ForAllPrincipals = Annotated[
    bool, typer.Option("--all-principals", help="For an operator (scope admin): of all owners.")
]


OWN_SERVICE_STOPPED: Final = (
    "Your own service does not run: it stops after half an hour without a client, an open call or a delivery. A client of "
    "yours starts it again with `ringback mcp`; `ringback listen` starts it now."
)
ONLY_OWN_PRINCIPAL: Final = "This is of your key's own principal only. Of all: ringback {command} --all-principals"
"""For a key with the scope `admin`, whose user may expect to see all principals."""


async def collect_first(items: AsyncIterator[T], *, limit: int | None) -> list[T]:
    """The first `limit` items, or all. No page after them is requested."""
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == limit:
            break
    return found


def is_own_service_chosen(url: str, api_key: str | None) -> bool:
    """Whether the command is given no other service than the user's own."""
    return url.rstrip("/") == URL_DEFAULT and not api_key


def choose_service(url: str, api_key: str | None) -> tuple[str, str | None]:
    """The URL and the key to use: the user's own service's if nothing else is chosen and none runs at the default URL."""
    if not is_own_service_chosen(url, api_key) or (own := find_own_service(URL_DEFAULT)) is None:
        return url, api_key
    return own.url, own.api_key


def start_own_service(url: str, api_key: str | None) -> None:
    """Start the user's own service for a command that waits for what it does, if nothing else is chosen."""
    if is_own_service_chosen(url, api_key):
        start_configured_service()


def create_client(url: str, api_key: str | None, principal: str | None = None) -> RingbackClient:
    with lean_imports():
        from ringback.client import RingbackClient  # noqa: PLC0415 - see above

    url, api_key = choose_service(url, api_key)
    try:
        return RingbackClient(url, api_key=api_key or None, principal=principal)
    except (ValueError, ImportError) as error:  # also of a proxy of the environment, which may need a package
        raise typer.BadParameter(str(error)) from None


def run_with_client(
    url: str, api_key: str | None, operation: Callable[[RingbackClient], Awaitable[T]], *, principal: str | None = None
) -> T:
    """Run one operation with a client, and return its result. Ctrl-C ends the command without a traceback."""

    async def run() -> T:
        async with create_client(url, api_key, principal) as client:
            return await operation(client)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except UnicodeEncodeError:
        raise InvalidArgument(NO_TEXT) from None
    except ConnectionFailed:
        if is_own_service_chosen(url, api_key) and has_stopped_service():
            raise ConnectionFailed(OWN_SERVICE_STOPPED) from None
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Which service a command uses, and with which key."""

    url: Url = URL_DEFAULT
    api_key: ApiKey = None

    @property
    def owner(self) -> str | None:
        """The principal whose data the command uses: a name, `*` for all, or None for the owner of the key."""
        return None

    def run(self, operation: Callable[[RingbackClient], Awaitable[T]]) -> T:
        """Run one operation with a client, and return its result."""
        return run_with_client(self.url, self.api_key, operation, principal=self.owner)

    def collect(self, list_items: Callable[[RingbackClient], AsyncIterator[T]], *, limit: int | None = None) -> list[T]:
        """The first `limit` items of a list, or all."""
        return self.run(lambda client: collect_first(list_items(client), limit=limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions(ServiceOptions):
    """… and whether it prints JSON."""

    as_json: AsJson = False

    def print_model(self, model: ModelT, print_text: Callable[[ModelT], None]) -> None:
        """Print the JSON object of the REST API, or the text."""
        (self.print_json if self.as_json else print_text)(model)

    def print_json(self, model: BaseModel) -> None:
        print_model(model)

    def with_owner(self, columns: Sequence[str]) -> Sequence[str]:
        """The columns of a table; an operator's has the owner after the id."""
        return columns if self.owner is None else (columns[0], "principal", *columns[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalOptions(PrintOptions):
    """… for a principal that an operator names."""

    principal: ForPrincipal = None

    @property
    def owner(self) -> str | None:
        return self.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions(PrintOptions):
    """… for one principal or for all."""

    principal: ForPrincipal = None
    all_principals: ForAllPrincipals = False

    def __post_init__(self) -> None:
        if self.principal is not None and self.all_principals:
            raise typer.BadParameter("give either --principal NAME or --all-principals")

    @property
    def owner(self) -> str | None:
        return ALL_PRINCIPALS if self.all_principals else self.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOptions(OperatorOptions):
    """… of a command that prints JSON only."""

    as_json: AlwaysJson = True


async def leaves_out_others(client: RingbackClient, options: OperatorOptions) -> bool:
    """Whether a key with the scope `admin` lists its own principal only. False if that cannot be read: a text depends on it."""
    if options.owner is not None or not options.api_key:
        return False
    with suppress(ClientError):
        return (await client.insights(hours=1)).leaves_out_others
    return False


def client_command(
    *expected: type[Exception], exit_code: Callable[[Exception], int] = lambda _: EXIT_NOT_DONE
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator of commands: expands an option group, and makes one message and an exit code of expected errors."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        return expand_option_group(exit_on_errors(*expected, exit_code=exit_code)(command))

    return decorate
