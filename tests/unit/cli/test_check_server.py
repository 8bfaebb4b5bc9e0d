"""The command line of `ringback check-server`; what it checks is in tests/interaction/events_checks."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import httpx
import pytest
from mcp.shared.inbound import decode_header_value
from starlette.requests import Request
from starlette.responses import Response

from ringback.cli.server_checks.callbacks import generate_secret
from ringback.cli.server_checks.connection import McpConnection
from ringback.cli.server_checks.emitters import NoEmitter
from ringback.cli.server_checks.message_stream import Reply
from ringback.cli.server_checks.subject import CheckTimeouts, EventChoice, ServerUnderTest
from tests.support.events_server import EventsServer, serving_events
from tests.support.limits import WAIT_SECONDS
from tests.unit.cli.conftest import Run

KEY: Final = ("--api-key", "alice")


@contextmanager
def serving_in_a_thread(server: EventsServer | str = "") -> Generator[str]:
    """A server, or the reference server with this fault, beside a command that runs its own event loop in this thread."""
    served: list[tuple[str, asyncio.AbstractEventLoop]] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving_events(EventsServer(server) if isinstance(server, str) else server) as url:
            served.append((url, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    url, loop = served[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def run_json(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = run("check-server", *arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def test_a_correct_server_has_a_report_with_counts_and_the_exit_code_0(run: Run) -> None:
    with serving_in_a_thread() as url:
        code, report = run_json(run, url, *KEY, "--only", "capability", "--only", "listing")

    assert code == 0
    assert report["about"] == url
    assert (report["counts"]["failed"], report["counts"]["warned"]) == (0, 0)
    assert report["counts"]["passed"] >= 10


def test_a_server_on_this_machine_is_not_looked_for_on_that_of_a_proxy(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the API key, too."""
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with serving_in_a_thread() as url:
        result = run("check-server", url, *KEY, "--only", "descriptor-name")

    assert result.exit_code == 0


class TerminatingServer(EventsServer):
    """Each subscribe sends SIGTERM to the process of the client, which is this one."""

    async def respond(self, request: Request) -> Response:
        method = json.loads(await request.body() or b"{}").get("method")
        response = await super().respond(request)
        if method == "events/subscribe":
            os.kill(os.getpid(), signal.SIGTERM)
        return response


def test_a_run_that_gets_sigterm_ends_its_subscriptions(run: Run) -> None:
    server = TerminatingServer()
    with serving_in_a_thread(server) as url:
        result = run("check-server", url, *KEY, "--only", "delivery", "--emit-tool", "emit")

    assert result.exit_code == 143
    assert [each.is_live for each in server.webhooks.by_key.values()] == [False]


async def test_a_subscription_that_cannot_be_ended_does_not_keep_the_others_from_it() -> None:
    ended: list[str] = []

    async def request(method: str, params: Mapping[str, Any]) -> Reply:
        if method == "events/unsubscribe":
            ended.append(params["delivery"]["url"])
            if len(ended) == 1:
                raise httpx.ReadTimeout("silent")
        return Reply(status=200, body="", message={"result": {}})

    connection: Any = SimpleNamespace(request=request)
    server = ServerUnderTest(
        connection=connection,
        other=None,
        endpoint=Mock(),
        emitter=NoEmitter(),
        read_time=Mock(),
        timeouts=CheckTimeouts(),
        choice=EventChoice(),
    )
    for number in range(3):
        delivery = {"mode": "webhook", "url": f"https://agent.example/{number}"}
        await server.subscribe_as(connection, {"name": "a.b", "arguments": {}, "delivery": delivery})

    await server.close()

    assert ended == [f"https://agent.example/{number}" for number in range(3)]


SECRET_URL: Final = "http://user:hunter2@127.0.0.1:1/mcp?api_key=hunter2"


@pytest.mark.parametrize(
    ("command", "options"), [("check-server", ()), ("check-receiver", ("--secret", generate_secret()))]
)
def test_an_error_about_a_url_does_not_repeat_the_secrets_in_it(
    run: Run, command: str, options: tuple[str, ...]
) -> None:
    result = run(command, SECRET_URL, *options)

    assert result.exit_code == 2
    assert "http://127.0.0.1:1/mcp" in result.output
    assert "hunter2" not in result.output


def test_a_report_does_not_repeat_the_secrets_of_a_url(run: Run) -> None:
    with serving_in_a_thread() as url:
        _, report = run_json(run, f"{url}?api_key=hunter2", *KEY, "--only", "descriptor-name")

    assert report["about"] == url


async def test_a_tool_whose_name_is_no_ascii_is_named_in_a_header_as_mcp_encodes_it() -> None:
    sent: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        connection = McpConnection(http, "http://server/mcp", credentials={})
        for name in ("größe", "size"):
            await connection.request("tools/call", {"name": name, "arguments": {}})

    assert [decode_header_value(each.headers["mcp-name"]) for each in sent] == ["größe", "size"]
    assert sent[1].headers["mcp-name"] == "size"


def test_a_broken_must_ends_with_1_and_is_printed_with_its_source(run: Run) -> None:
    with serving_in_a_thread("descriptor-name") as url:
        result = run("check-server", url, *KEY, "--only", "descriptor-name")

    assert result.exit_code == 1
    assert "MUST descriptor-name: Events (SEP-3415), Listing" in result.stdout


def test_a_broken_should_is_a_warning_and_ends_with_0(run: Run) -> None:
    with serving_in_a_thread("descriptor-description") as url:
        code, report = run_json(run, url, *KEY, "--only", "descriptor-description")

    assert (code, report["counts"]["warned"]) == (0, 1)


def test_a_command_makes_the_event_happen(run: Run) -> None:
    with serving_in_a_thread() as url:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "emit"}}
        curl = f"curl --silent --output /dev/null --data '{json.dumps(message)}' {url}"
        code, report = run_json(run, url, *KEY, "--emit", curl, "--only", "occurrences")

    assert (code, report["counts"]["untestable"]) == (0, 0)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--emit", "echo no such queue; exit 3"), "the command of --emit ended with 3: no such queue"),
        (("--emit-tool", "emti"), 'the tool "emti" that makes an event happen failed: error -32602: Unknown tool'),
        (("--event", "note.adedd"), "the server has no event type 'note.adedd'; it lists: note.added"),
        (("--event", "note.adedd"), ". Correct --event"),
    ],
)
def test_a_run_that_could_not_check_what_its_options_name_ends_with_2_and_says_why(
    run: Run, option: tuple[str, ...], said: str
) -> None:
    with serving_in_a_thread() as url:
        result = run("check-server", url, *KEY, *option, "--only", "occurrence-event-id")

    assert result.exit_code == 2
    assert said in result.output


def test_a_named_event_type_that_lacks_a_mode_is_not_replaced_by_another(run: Run) -> None:
    with serving_in_a_thread() as url:
        _, report = run_json(run, url, *KEY, "--event", "note.counted", "--only", "stream", "--only", "listing")

    observed = {each["id"]: each["observed"] for each in report["checks"]}
    assert observed["stream-implemented"] == "note.counted does not offer push"


def test_a_server_that_refuses_callbacks_to_this_machine_is_distinguished_from_a_broken_one(run: Run) -> None:
    with serving_in_a_thread("subscribe-refuses-loopback") as url:
        code, report = run_json(run, url, *KEY, "--only", "ttl-omitted-means-default")

    assert code == 2, "a run that checked nothing is no success"
    assert "--callback-url" in report["checks"][0]["observed"]


def test_a_server_without_events_gets_one_sentence_instead_of_a_report(run: Run) -> None:
    with serving_in_a_thread("no-events") as url:
        result = run("check-server", url, *KEY)

    assert result.exit_code == 2
    assert "offers no MCP Events" in result.output
    assert "capability-events-object" not in result.output


def test_the_checks_are_listed_without_a_server(run: Run) -> None:
    result = run("check-server", "--list", "--only", "ttl")

    assert result.exit_code == 0
    assert "ttl-null-only-when-requested" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the URL"),
        (("http://127.0.0.1:1/mcp",), "answered no handshake"),
        (("http://[::1",), "give the whole URL"),
        (("example.com/mcp",), "give the whole URL"),
        (("http://127.0.0.1:1/mcp", "--only", "nothing"), "nothing"),
        (("http://127.0.0.1:1/mcp", "--header", "no-colon"), "Name: value"),
        (("http://127.0.0.1:1/mcp", "--arguments", "[]"), "JSON object"),
    ],
)
def test_a_run_that_cannot_begin_ends_with_2_and_says_what_to_do(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    result = run("check-server", *arguments)

    assert result.exit_code == 2
    assert said in result.output


def test_a_callback_port_that_is_taken_is_named(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("check-server", "http://127.0.0.1:1/mcp", "--callback-port", port)

    assert result.exit_code == 2
    assert f"port {port} cannot receive callbacks: address already in use" in result.output


def test_the_list_of_checks_is_json_if_that_is_asked_for(run: Run) -> None:
    listed = json.loads(run("check-server", "--list", "--json").stdout)

    assert {"chapter", "level", "check", "expectation"} == set(listed[0])
