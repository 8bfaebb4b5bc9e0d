"""The command line as real processes: a service, a listener, and calls, as in three terminals."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from asyncio import StreamReader
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import httpx
import pytest

from ringback.cli.http_connections import REQUEST_SECONDS
from ringback.client import RingbackClient
from ringback.signing.standard_webhooks import build_signed_headers
from scripts.ports import free_port
from tests.support.forked_commands import ForkedCommand, running_forked_command
from tests.support.limits import WAIT_SECONDS
from tests.support.raw_http_server import RawServer, serving_raw
from tests.support.signed_posts import make_event_body
from tests.support.upstreams import STDIO_SERVER, wait_until_true

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RESPONSE_SECONDS: Final = 30.0
"""How long a client waits for a response."""


class Terminal:
    """A running command: its output by line, and its exit."""

    def __init__(self, process: ForkedCommand) -> None:
        self._process = process
        self.out = process.stdout
        self.err = process.stderr

    async def wait_for_output(self, stream: StreamReader, pattern: str) -> re.Match[str]:
        """The next line that matches the pattern."""
        said: list[str] = []
        async with asyncio.timeout(WAIT_SECONDS):
            async for line in stream:
                said.append(line.decode())
                if found := re.search(pattern, said[-1]):
                    return found
        raise AssertionError(f"no {pattern!r} in {''.join(said)}")

    async def wait_until_output_blocks(self) -> None:
        """Wait until no more of standard output is read, so that the process waits in its next 64 KiB."""
        await wait_until_true(lambda: self._process.is_stdout_paused)

    def send_interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def close_terminal(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    async def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._process.wait()

    async def end_process(self) -> tuple[int | None, str, str]:
        async with asyncio.timeout(WAIT_SECONDS):
            out, err = await self._process.communicate()
        return self._process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def ringback(*arguments: str, folder: Path, **environment: str) -> AsyncGenerator[Terminal]:
    """Run `ringback …` in this folder; the end of the context kills it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RINGBACK_")}
    async with running_forked_command(*arguments, folder=folder, environment=inherited | environment) as process:
        yield Terminal(process)


@pytest.fixture(scope="module")
async def url(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """A service started by `ringback serve --dev`, with the demo and an upstream that can die."""
    folder = module_path_factory.mktemp("service")
    upstreams = (
        *("--upstream", f"demo={sys.executable} -m ringback.cli.demo_upstream"),
        *("--upstream", f"odd={sys.executable} {STDIO_SERVER}"),
    )
    async with ringback("serve", "--dev", "--port", "0", *upstreams, folder=folder) as service:
        yield (await service.wait_for_output(service.err, r"service\.listening .*url=(\S+)"))[1]
        assert await service.interrupt() == 0


@pytest.mark.parametrize("options", [(), ("--port", "0")], ids=["event stream", "webhook"])
async def test_a_listener_whose_service_does_not_respond_ends_at_the_first_interrupt(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    requested = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await reader.read()

    server = RawServer()
    async with (
        serving_raw(stay_silent, server),
        ringback("listen", "--url", server.url, *options, folder=tmp_path, XDG_STATE_HOME=str(tmp_path)) as listener,
        asyncio.timeout(WAIT_SECONDS),
    ):
        await requested.wait()
        async with asyncio.timeout(RESPONSE_SECONDS / 2):
            assert await listener.interrupt() == 130


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
async def test_a_listener_gets_a_callback_and_its_token_resumes_the_call(url: str, tmp_path: Path) -> None:
    async with ringback("listen", "--port", "0", "--url", url, folder=tmp_path) as listener:
        await listener.wait_for_output(listener.err, "Listening on")
        call = ("call", "demo", "count_primes", "--arg", "below=1000", "--correlation", "c1", "--session", "s1")
        async with ringback(*call, folder=tmp_path, RINGBACK_URL=url) as caller:
            code, said, _ = await caller.end_process()
        rung = await listener.wait_for_output(listener.out, r"call\.finished demo/count_primes completed \(result\)")
        shown = [await listener.wait_for_output(listener.out, r"(\w+): (\S+)") for _ in range(4)]
        shown_ids = {line[1]: line[2] for line in shown}
        async with RingbackClient(url) as client:
            resumed = await client.resume(shown_ids["resume_token"])
            assert await listener.interrupt() == 0
            left = [webhook async for webhook in client.webhooks()]

    assert rung
    assert code == 0
    assert f"call_id: {shown_ids['call_id']}\n" in said
    assert (shown_ids["correlation_id"], shown_ids["client_session_id"]) == ("c1", "s1")
    assert resumed.result is not None
    assert resumed.result["structuredContent"] == {"result": 168}
    assert left == []


async def test_a_receiver_that_was_killed_leaves_one_webhook_for_its_next_start(url: str, tmp_path: Path) -> None:
    listen = ("listen", "--port", str(free_port()), "--url", url)
    named: list[str] = []
    async with RingbackClient(url) as client:
        for _ in range(2):
            async with ringback(*listen, folder=tmp_path) as listener:
                registered = await listener.wait_for_output(
                    listener.err, r"Registered the webhook (wh_\w+), named (\S+)\."
                )
                named.append(registered[1])
                await listener.wait_for_output(listener.err, "Listening on")
        left = [webhook.id async for webhook in client.webhooks()]
        await client.delete_webhook(named[0])

    assert named[0] == named[1]
    assert left == [named[0]]


@pytest.mark.requirement("R23")
async def test_a_receiver_names_another_webhook_of_its_address_and_registers_none_beside_a_secret(
    url: str, tmp_path: Path
) -> None:
    port = free_port()
    async with RingbackClient(url) as client:
        own = await client.register_webhook(f"http://127.0.0.1:{port}/callbacks", secret=SECRET)
        async with ringback("listen", "--port", str(port), "--url", url, folder=tmp_path) as listener:
            await listener.wait_for_output(listener.err, rf"Your webhook {own.id} sends to .*rejected here")
            assert await listener.interrupt() == 0
        listen = ("listen", "--port", str(port), "--secret", SECRET, "--json")
        async with ringback(*listen, folder=tmp_path, RINGBACK_URL=url) as listener:
            await listener.wait_for_output(listener.err, "Listening on")
            listed = [webhook.id async for webhook in client.webhooks()]
            await client.test_webhook(own.id)
            line = await listener.wait_for_output(listener.out, r"^(\{.*\})$")
            assert await listener.interrupt() == 0
        await client.delete_webhook(own.id)

    assert listed == [own.id]
    assert json.loads(line[1])["data"]["webhook_id"] == own.id


async def test_a_result_is_waited_for_and_printed(url: str, tmp_path: Path) -> None:
    arguments = ("call", "demo", "count_primes", "--arg", "below=100", "--wait", "--url", url)
    async with ringback(*arguments, folder=tmp_path) as caller:
        code, said, _ = await caller.end_process()

    assert (code, said) == (0, "25\n")


async def test_an_interrupted_join_leaves_the_call_running_and_says_how_to_join_it_again(
    url: str, tmp_path: Path
) -> None:
    async with RingbackClient(url) as client:
        started = await client.start_call("odd", "hold")
        arguments = ("join", started.resume_token, "--url", url)
        async with ringback(*arguments, folder=tmp_path) as joiner:
            await joiner.wait_for_output(joiner.err, f"{started.call.id} is running")
            await joiner.wait_for_output(joiner.err, "1/2 inside")
            code = await joiner.interrupt()
            advice = await joiner.wait_for_output(joiner.err, "continues")
        call = await client.call(started.call.id)
        await client.cancel(started.call.id)

    assert code == 130
    assert f"Join it: ringback join {started.call.id}" in advice.string
    assert (call.status, call.cancel_requested) == ("working", False)


async def test_followed_events_end_with_ctrl_c_and_the_cursor_to_continue_from(url: str, tmp_path: Path) -> None:
    follow = ("events", "--follow", "--json", "--name", "call.finished", "--url", url)
    async with RingbackClient(url) as client, ringback(*follow, folder=tmp_path) as log:
        call = (await client.start_call("demo", "count_primes", {"below": 10})).call
        await log.wait_for_output(log.out, call.id)
        code = await log.interrupt()
        cursor = (await log.wait_for_output(log.err, r"--cursor (\S+)"))[1]
        later = [event async for event in client.events(cursor=cursor, call_id=call.id, name="call.finished")]

    assert code == 130
    assert later == []


@pytest.mark.requirement("R33")
async def test_a_dying_upstream_ends_the_command_with_1(url: str, tmp_path: Path) -> None:
    async with ringback("call", "odd", "die", "--wait", "--url", url, folder=tmp_path) as caller:
        code, said, problem = await caller.end_process()

    assert (code, said) == (1, "")
    assert "failed (unknown)" in problem


async def test_an_unreachable_url_prints_one_line_with_the_next_step(tmp_path: Path) -> None:
    async with ringback("call", "demo", "count_primes", "--url", "http://127.0.0.1:1", folder=tmp_path) as caller:
        code, said, problem = await caller.end_process()

    assert (code, said) == (2, "")
    assert problem == (
        "Error: No server responds at http://127.0.0.1:1. Start Ringback there with 'ringback serve', "
        "or choose another URL (RINGBACK_URL).\n"
    )


@pytest.mark.requirement("R23")
async def test_a_listener_rejects_callbacks_signed_with_another_secret(tmp_path: Path) -> None:
    async with ringback("listen", "--port", "0", "--secret", SECRET, folder=tmp_path) as listener:
        address = (await listener.wait_for_output(listener.err, r"Listening on (\S+)"))[1]
        headers = build_signed_headers(["whsec_" + "A" * 32], message_id="evt_1", timestamp=1_795_000_000, body=b"{}")
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            response = await http.post(address, content=b"{}", headers=headers)
        refused = await listener.wait_for_output(listener.err, "Rejected a request: (.*)")

        assert response.status_code == 400
        assert refused[1] == response.text
        assert await listener.interrupt() == 0


@pytest.mark.requirement("R16")
async def test_a_listener_without_a_port_prints_what_ended_while_it_was_away(url: str, tmp_path: Path) -> None:
    listen = ("listen", "--json", "--session", "laptop", "--state", "state.db")
    call = ("call", "demo", "count_primes", "--arg", "below=100", "--session", "laptop", "--wait", "--correlation")
    async with ringback(*listen, folder=tmp_path, RINGBACK_URL=url) as listener:
        await listener.wait_for_output(listener.err, "Only events from now on")
        async with ringback(*listen, folder=tmp_path, RINGBACK_URL=url) as second:
            refused = await second.end_process()
        assert await listener.interrupt() == 0
    async with ringback(*call, "asleep", folder=tmp_path, RINGBACK_URL=url) as caller:
        assert (await caller.end_process())[0] == 0
    async with ringback(*listen, folder=tmp_path, RINGBACK_URL=url) as listener:
        line = await listener.wait_for_output(listener.out, r"^(\{.*\})$")
        assert await listener.interrupt() == 0

    body = json.loads(line[1])
    assert (body["name"], body["data"]["correlation_id"], body["data"]["outcome"]) == (
        "call.finished",
        "asleep",
        "result",
    )
    assert body["data"]["resume_url"] == f"{url}/v1/resume"
    assert (refused[0], refused[1]) == (2, "")
    assert re.search(r"Another listener \(process \d+\) uses state\.db.*--state PATH", refused[2])


async def test_a_second_interrupt_ends_the_commands_that_a_listener_waits_for(url: str, tmp_path: Path) -> None:
    listen = ("listen", "--session", "hang", "--state", "state.db", "--exec", "echo begun; sleep 3600", "--url", url)
    call = ("call", "demo", "count_primes", "--arg", "below=100", "--session", "hang", "--wait", "--url", url)
    async with ringback(*listen, folder=tmp_path) as listener:
        await listener.wait_for_output(listener.err, "Only events from now on")
        async with ringback(*call, folder=tmp_path) as caller:
            assert (await caller.end_process())[0] == 0
        await listener.wait_for_output(listener.out, "begun")
        listener.send_interrupt()
        await listener.wait_for_output(listener.err, "Interrupt again")
        assert await listener.interrupt() == 0


def is_listening(address: str) -> bool:
    with socket.socket() as connecting:
        return connecting.connect_ex(("127.0.0.1", httpx.URL(address).port)) == 0


UNREAD: Final = "\x7f" * 60_000
"""Printed as 360,000 bytes: more than a pipe and its reader take before anything is read."""


async def test_a_second_interrupt_ends_a_listener_whose_output_nobody_reads(url: str, tmp_path: Path) -> None:
    listen = ("listen", "--json", "--event", "text.written", "--state", "state.db", "--url", url)
    async with ringback(*listen, folder=tmp_path) as listener, RingbackClient(url) as client:
        await listener.wait_for_output(listener.err, "Only events from now on")
        await client.publish_event("text.written", {"text": UNREAD})
        await listener.wait_until_output_blocks()
        listener.send_interrupt()
        await listener.wait_for_output(listener.err, "Interrupt again")
        assert await listener.interrupt() == 130
    async with ringback(*listen, folder=tmp_path) as listener:
        await listener.wait_until_output_blocks()  # it comes again


async def test_a_second_interrupt_ends_a_receiver_whose_output_nobody_reads(tmp_path: Path) -> None:
    async with ringback("listen", "--json", "--port", "0", "--secret", SECRET, folder=tmp_path) as listener:
        address = (await listener.wait_for_output(listener.err, r"Listening on (\S+)"))[1]
        body = json.dumps(make_event_body(text=UNREAD), ensure_ascii=False).encode()
        signed = build_signed_headers([SECRET], message_id="evt_1", timestamp=int(time.time()), body=body)  # noqa: TID251 - the receiver has the system's clock
        async with httpx.AsyncClient(trust_env=False) as http:
            sending = asyncio.create_task(http.post(address, content=body, headers=signed))
            await listener.wait_until_output_blocks()
            listener.send_interrupt()
            await wait_until_true(lambda: not is_listening(address))
            assert await listener.interrupt() == 130
            with pytest.raises(httpx.HTTPError):  # the sender keeps its callback
                await sending


async def test_a_connection_without_a_request_does_not_delay_the_end_of_a_receiver(tmp_path: Path) -> None:
    async with ringback("listen", "--port", "0", "--secret", SECRET, folder=tmp_path) as listener:
        port = (await listener.wait_for_output(listener.err, r"Listening on http://127\.0\.0\.1:(\d+)"))[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        with closing(writer):
            async with httpx.AsyncClient(trust_env=False) as http:  # served after the first connection
                refused = await http.get(f"http://127.0.0.1:{port}/")
            async with asyncio.timeout(REQUEST_SECONDS / 2):
                assert await listener.interrupt() == 0
            assert (await reader.read(), refused.status_code) == (b"", 405)


async def test_a_listener_runs_no_command_while_one_of_a_killed_listener_still_saves_its_work(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "wake.sh").write_text(
        "[ -e ledger ] && { echo begun >> ledger; exit 0; }\n"
        "trap 'sleep 3; echo ended >> ledger; exit 1' TERM\n"
        "echo begun >> ledger; sleep 3600 & wait\n",
        encoding="utf-8",
    )
    listen = ("listen", "--session", "killed", "--state", "state.db", "--exec", "sh wake.sh", "--url", url)
    call = ("call", "demo", "count_primes", "--arg", "below=100", "--session", "killed", "--wait", "--url", url)
    ledger = tmp_path / "ledger"
    async with ringback(*listen, folder=tmp_path) as listener:
        await listener.wait_for_output(listener.err, "Only events from now on")
        async with ringback(*call, folder=tmp_path) as caller:
            assert (await caller.end_process())[0] == 0
        await wait_until_true(ledger.exists)
        listener.kill()
        async with ringback(*listen, folder=tmp_path) as second:
            await second.wait_for_output(second.err, "handled")
            assert await second.interrupt() == 0

    assert ledger.read_text(encoding="utf-8").split() == ["begun", "ended", "begun"]


async def test_a_listener_says_at_its_start_that_its_command_is_not_found(url: str, tmp_path: Path) -> None:
    listen = ("listen", "--session", "none", "--state", "state.db", "--exec", "no-such-program-7 --now", "--url", url)
    async with ringback(*listen, folder=tmp_path) as listener:
        warning = await listener.wait_for_output(listener.err, r"^Warning: .*")
        await listener.wait_for_output(listener.err, r"^Listening for events")
        assert await listener.interrupt() == 0

    assert "the shell finds no program 'no-such-program-7' for --exec" in warning[0]


async def test_a_wrapped_server_prints_its_urls_and_runs_calls(tmp_path: Path) -> None:
    command = ("dev", "--port", "0", "--", sys.executable, str(STDIO_SERVER))
    async with ringback(*command, folder=tmp_path) as dev:
        mcp_url = (await dev.wait_for_output(dev.out, r"^MCP URL +(\S+)/mcp/stdio-upstream$"))[1]
        listen = await dev.wait_for_output(dev.out, r"^Listen +ringback listen --url (\S+)$")
        tools = await dev.wait_for_output(dev.out, r"^Tools +(.+)$")
        call = ("call", "stdio-upstream", "whoami", "--wait", "--url", listen[1])
        async with ringback(*call, folder=tmp_path) as caller:
            ended = await caller.end_process()
        assert await dev.interrupt() == 0

    assert (mcp_url, tools[1]) == (listen[1], "whoami, hold, die, noise")
    assert ended[0] == 0
    assert json.loads(ended[1])["pid"]
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing blocks


async def test_what_a_wrapped_server_writes_to_stderr_is_shown_while_it_starts(tmp_path: Path) -> None:
    """A launcher may download it for a minute, and a server may wait for a token without end."""
    (tmp_path / "waiting.py").write_text(
        "import sys\nprint('looking for the token', file=sys.stderr, flush=True)\nsys.stdin.read()\n", encoding="utf-8"
    )
    async with ringback("dev", "--port", "0", "--", sys.executable, "waiting.py", folder=tmp_path) as dev:
        await dev.wait_for_output(dev.err, r"^  \| looking for the token$")


async def test_a_wrapped_server_that_fails_ends_the_command_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import sys\nprint('looking for the token', file=sys.stderr)\nraise KeyError('ACME_TOKEN')\n", encoding="utf-8"
    )
    async with ringback("dev", "--port", "0", "--", sys.executable, "broken.py", folder=tmp_path) as dev:
        code, printed, said = await dev.end_process()

    assert (code, printed) == (2, "")
    assert "  | looking for the token" in said
    assert "  | KeyError: 'ACME_TOKEN'" in said


async def test_a_key_made_beside_a_running_service_opens_it(tmp_path: Path) -> None:
    async with ringback("serve", "--port", "0", folder=tmp_path) as service:
        url = (await service.wait_for_output(service.err, r"service\.listening .*url=(\S+)"))[1]
        async with ringback("keys", "create", "alice", folder=tmp_path) as keys:
            code, key, _ = await keys.end_process()
        async with RingbackClient(url, api_key=key.strip()) as client:
            upstreams = await client.upstreams()

    assert code == 0
    assert upstreams == ()


async def test_a_taken_port_is_one_line_that_says_what_to_do(url: str, tmp_path: Path) -> None:
    port = url.rsplit(":", 1)[1]
    async with (
        ringback("serve", "--port", port, folder=tmp_path) as service,
        ringback("listen", "--port", port, "--secret", SECRET, folder=tmp_path) as listener,
    ):
        ends = [await service.end_process(), await listener.end_process()]

    assert [(code, said) for code, said, _ in ends] == [(75, ""), (2, "")]
    assert all("--port" in problem and len(problem.splitlines()) == 1 for _, _, problem in ends)


@pytest.mark.requirement("R28")
async def test_a_service_that_is_hung_up_on_reads_its_file_again(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"one": {"url": "http://127.0.0.1:1/mcp"}}}', encoding="utf-8")
    async with ringback("serve", "--dev", "--port", "0", "--config", str(file), folder=tmp_path) as service:
        await service.wait_for_output(service.err, r"service\.listening")
        file.write_text('{"mcpServers": ', encoding="utf-8")
        service.close_terminal()
        await service.wait_for_output(service.err, r"configuration\.not_reloaded .*mcp\.json: not valid JSON")
        file.write_text('{"mcpServers": {"two": {"url": "http://127.0.0.1:1/mcp"}}}', encoding="utf-8")
        service.close_terminal()
        await service.wait_for_output(service.err, r"upstreams\.reloaded added=two changed=none removed=one")
        assert await service.interrupt() == 0
