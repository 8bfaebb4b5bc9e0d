"""One run of the checks: its options, its connections, and its results."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import httpx

from ringback.cli.check_report import CheckResult, describe_url, violated
from ringback.cli.http_clients import refuse_cookies
from ringback.cli.server_checks.callback_endpoint import listening_endpoint
from ringback.cli.server_checks.cases import (
    FAILED_REQUEST,
    UNREADABLE_RESPONSE,
    ImpossibleRun,
    ServerCase,
    Untestable,
    Violation,
)
from ringback.cli.server_checks.chapters import CASES
from ringback.cli.server_checks.chapters.capability import declared_settings
from ringback.cli.server_checks.connection import REPLY_SECONDS, Era, McpConnection
from ringback.cli.server_checks.emitters import CommandEmitter, Emitter, NoEmitter, ToolEmitter
from ringback.cli.server_checks.rules import METHOD_NOT_FOUND
from ringback.cli.server_checks.subject import CheckTimeouts, EventChoice, ServerUnderTest, list_catalog
from ringback.client.arguments import is_on_this_machine

CASE_SECONDS: Final = 180.0
"""For one case with all that it observes; longer than an observation may take."""

ADVICE: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: " (give --api-key or --header)",
    HTTPStatus.FORBIDDEN: " (do these credentials have access?)",
}
"""What to do about the status of a handshake."""
TYPES_SHOWN: Final = 20
"""Event types that an error lists."""


class ServerUnreachable(ImpossibleRun):
    """The server answered neither handshake. The message says what it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    url: str
    credentials: Mapping[str, str] = field(default_factory=dict[str, str])
    other_credentials: Mapping[str, str] | None = None
    era: Era | None = None
    """None: modern if the server answers it, else legacy."""
    callback_port: int = 0
    callback_url: str | None = None
    choice: EventChoice = field(default_factory=EventChoice)
    emit_command: str | None = None
    emit_tool: str | None = None
    emit_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeouts: CheckTimeouts = field(default_factory=CheckTimeouts)


def select_cases(only: Sequence[str]) -> list[ServerCase]:
    """The cases with these ids or of these chapters; all if none is named. Raises ValueError for an unknown one."""
    known = {case.case.id for case in CASES} | {case.chapter for case in CASES}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"no check and no chapter is called {', '.join(unknown)}")
    return [case for case in CASES if not only or case.case.id in only or case.chapter in only]


async def run_checks(options: RunOptions, cases: Sequence[ServerCase]) -> list[CheckResult]:
    """Run the cases one after the other. Raises `ImpossibleRun`."""
    async with open_server(options) as server:
        await _require_events(server)
        await _require_chosen_type(server)
        return [await run_case(case, server) for case in cases]


async def _require_events(server: ServerUnderTest) -> None:
    """Raise `ImpossibleRun` if the server neither declares Events nor has the method: every check would say only that."""
    try:
        if await server.observe(declared_settings):
            return
        reply = await server.connection.request("events/list", {})
    except (Violation, *FAILED_REQUEST, *UNREADABLE_RESPONSE):
        return
    if reply.code == METHOD_NOT_FOUND:
        raise ImpossibleRun(
            f"{describe_url(server.connection.url)} offers no MCP Events: its handshake declares none, and events/list answers "
            f"{reply.describe()}. Check the URL, or declare the capability"
        )


async def _require_chosen_type(server: ServerUnderTest) -> None:
    """Raise `ImpossibleRun` unless the server lists the event type that the user named. A list that fails is for the cases."""
    wanted = server.choice.name
    if wanted is None:
        return
    try:
        listed = [str(each.get("name")) for each in (await server.observe(list_catalog)).descriptors]
    except (Violation, Untestable, *UNREADABLE_RESPONSE):
        return
    if wanted not in listed:
        shown = ", ".join(listed[:TYPES_SHOWN]) + (", …" if len(listed) > TYPES_SHOWN else "")
        raise ImpossibleRun(f"the server has no event type {wanted!r}; it lists: {shown or 'none'}. Correct --event")


async def run_case(case: ServerCase, server: ServerUnderTest) -> CheckResult:
    try:
        async with asyncio.timeout(CASE_SECONDS):
            return await case.run(server)
    except TimeoutError:
        return violated(case.case, f"the server did not finish within {CASE_SECONDS:.0f} s")


@asynccontextmanager
async def open_server(options: RunOptions) -> AsyncGenerator[ServerUnderTest]:
    """Connect, listen for callbacks, and unsubscribe everything at the end."""
    async with (
        create_http_client(options.url) as http,
        listening_endpoint(options.callback_port, options.callback_url) as endpoint,
    ):
        connection = await _connect(http, options, options.credentials)
        server = ServerUnderTest(
            connection=connection,
            other=None,
            endpoint=endpoint,
            emitter=_make_emitter(options, connection),
            read_time=_read_time,
            timeouts=options.timeouts,
            choice=options.choice,
        )
        try:
            if options.other_credentials is not None:
                server.other = await _connect(http, options, options.other_credentials)
            yield server
        finally:
            await _close(server)


def create_http_client(url: str) -> httpx.AsyncClient:
    """It waits for a silent stream for as long as the checks do. A response to a request has the limit of its connection.

    It keeps no cookies, which would make one principal of all that it sends requests for. A proxy of the environment would
    look for a server of this machine on its own, and get its credentials.
    """
    return httpx.AsyncClient(
        timeout=httpx.Timeout(REPLY_SECONDS, read=None),
        follow_redirects=False,
        trust_env=not is_on_this_machine(url),
        cookies=refuse_cookies(),
    )


async def _close(server: ServerUnderTest) -> None:
    """Unsubscribe and end the session, as far as the server lets it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(server.timeouts.close_seconds):
            with suppress(*FAILED_REQUEST, *UNREADABLE_RESPONSE):
                await server.close()
            for connection in filter(None, (server.connection, server.other)):
                with suppress(*FAILED_REQUEST, *UNREADABLE_RESPONSE):
                    await connection.close()


def _read_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the command's clock: an edge, like a client's


async def _connect(http: httpx.AsyncClient, options: RunOptions, credentials: Mapping[str, str]) -> McpConnection:
    connection = McpConnection(http, options.url, credentials=credentials, reply_seconds=options.timeouts.reply_seconds)
    answers: list[str] = []
    for era in [options.era] if options.era else list(Era):
        connection.era = era
        try:
            async with asyncio.timeout(options.timeouts.handshake_seconds):
                reply = await (connection.discover() if era is Era.MODERN else connection.initialize())
            if reply.has_result:
                return connection
            answers.append(f"{era}: {reply.describe()}{ADVICE.get(reply.status, '')}")
        except TimeoutError:
            answers.append(f"{era}: no response within {options.timeouts.handshake_seconds:g} s")
        except (*FAILED_REQUEST, *UNREADABLE_RESPONSE) as error:
            answers.append(f"{era}: {type(error).__name__}: {error}")
    raise ServerUnreachable(f"{describe_url(options.url)} answered no handshake of MCP: {'; '.join(answers)}")


def _make_emitter(options: RunOptions, connection: McpConnection) -> Emitter:
    if options.emit_tool is not None:
        return ToolEmitter(connection, options.emit_tool, options.emit_arguments)
    return CommandEmitter(options.emit_command) if options.emit_command is not None else NoEmitter()
