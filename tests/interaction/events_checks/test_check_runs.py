"""What a run of `ringback check-server` leaves behind, and why one cannot begin."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ringback.cli.check_report import CheckVerdict
from ringback.cli.server_checks.callback_endpoint import listening_endpoint
from ringback.cli.server_checks.connection import Era
from ringback.cli.server_checks.run import RunOptions, ServerUnreachable, run_checks, select_cases
from tests.interaction.events_checks.test_check_server import WEBHOOK_TYPE_FIRST, ScriptedServer
from tests.support.events_server import EventsServer, serving_events
from tests.support.limits import WAIT_SECONDS


async def test_a_run_leaves_no_subscription_behind() -> None:
    server = EventsServer()
    async with serving_events(server) as url:
        options = RunOptions(
            url=url,
            credentials={"authorization": "Bearer alice"},
            other_credentials={"authorization": "Bearer bob"},
        )
        await run_checks(options, select_cases(["ttl", "subscribe"]))

    assert len(server.webhooks.by_key) > 0
    assert [each for each in server.webhooks.by_key.values() if each.is_live] == []


class SessionCounter(EventsServer):
    """Notes which sessions were ended."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ended = list[str]()

    async def respond(self, request: Request) -> Response:
        if request.headers.get("authorization") == "Bearer mallory":
            return Response(status_code=401)
        if request.method == "DELETE":
            self.ended.append(request.headers["mcp-session-id"])
        return await super().respond(request)


@pytest.mark.parametrize("era", list(Era))
async def test_a_run_leaves_no_session_behind(era: Era) -> None:
    server = SessionCounter()
    async with serving_events(server) as url:
        await run_checks(RunOptions(url=url, era=era), select_cases(["capability"]))

    opened = next(server.sessions)
    assert opened > 0
    assert server.ended == [f"s{number}" for number in range(opened)]


async def test_a_run_whose_other_principal_is_refused_leaves_no_session_behind() -> None:
    server = SessionCounter()
    async with serving_events(server) as url:
        options = RunOptions(url=url, era=Era.LEGACY, other_credentials={"authorization": "Bearer mallory"})
        with pytest.raises(ServerUnreachable, match="HTTP 401"):
            await run_checks(options, select_cases(["capability"]))

    assert server.ended == ["s0"]


async def test_a_subscription_that_should_have_been_refused_is_ended_after_the_run() -> None:
    server = ScriptedServer({"events/list": WEBHOOK_TYPE_FIRST}, "error-invalid-params")
    async with serving_events(server) as url:
        options = RunOptions(url=url, credentials={"authorization": "Bearer alice"})
        (result,) = await run_checks(options, select_cases(["error-invalid-params"]))

    assert result.verdict is CheckVerdict.FAILED
    assert [each.is_live for each in server.webhooks.by_key.values()] == [False]


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        pytest.param(b"POST /unknown HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 0, id="a-callback-from-outside"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 1, id="the-begin-of-tls"),
    ],
)
async def test_only_a_tls_connection_shows_that_a_server_called_the_loopback_address(sent: bytes, counted: int) -> None:
    async with listening_endpoint(0, "https://agent.example") as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(sent)
        await reader.read()
        writer.close()

    assert endpoint.unreadable_connections == counted


async def test_the_end_of_a_run_closes_connections_whose_request_has_not_arrived() -> None:
    async with listening_endpoint(0, None) as endpoint:
        silent, its_writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        served, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"POST /unknown HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        await served.read()  # the endpoint accepts connections in their order
        writer.close()

    async with asyncio.timeout(WAIT_SECONDS):
        assert await silent.read() == b""
    its_writer.close()


async def test_a_server_that_asks_for_credentials_is_an_error_that_names_the_options() -> None:
    async with serving_events(SessionCounter()) as url:
        options = RunOptions(url=url, credentials={"authorization": "Bearer mallory"})
        with pytest.raises(ServerUnreachable, match=r"HTTP 401 .* \(give --api-key or --header\)"):
            await run_checks(options, select_cases(["capability"]))


async def test_a_url_without_an_mcp_server_is_an_error_that_says_what_it_answered() -> None:
    with pytest.raises(ServerUnreachable, match="answered no handshake of MCP"):
        await run_checks(RunOptions(url="http://127.0.0.1:1/mcp"), select_cases(["capability"]))


def test_an_unknown_check_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no-such-check"):
        select_cases(["poll", "no-such-check"])
