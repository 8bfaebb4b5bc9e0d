"""The README's snippets work: each one marked `<!-- run: … -->` is run unchanged, and so are the examples of clients it links.

Those in Python run in forks, where the service is imported already: tests/contract/test_client_imports.py and test_imports.py
show what each part imports.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import httpx
import pytest

from ringback.bootstrap import open_application
from ringback.client import RingbackClient
from ringback.domain.clock import SystemClock
from ringback.receiver import ReceiverApp
from ringback.settings import load_settings
from ringback.signing import standard_webhooks
from ringback.upstreams.config import parse_upstream_option
from scripts.ports import free_port
from tests.support import npm
from tests.support.forked_commands import run_forked_program, running_forked_command
from tests.support.forked_ringback import forked_ringback_program
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.upstreams import serving

ROOT: Final = Path(__file__).resolve().parents[2]
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_BLOCK: Final = re.compile(r"<!-- run: (?P<kind>[a-z-]+) -->\n```\w+\n(?P<code>.*?)```", re.DOTALL)

_FENCED_CODE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_INLINE_CODE: Final = re.compile(r"`([^`]+)`")
_NAMED_OBJECTS: Final = {"receiver": ReceiverApp, "ringback": RingbackClient}


def snippets(kind: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = [match["code"] for match in _BLOCK.finditer(text) if match["kind"] == kind]
    assert found, f"the README has no snippet of kind {kind}"
    return found


async def run_snippet(*command: str, folder: Path, stdin: str = "", **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=os.environ | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            out, error = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def run_python(code: str, *, folder: Path, stdin: str = "", **environment: str) -> str:
    return await run_forked_program(code, folder=folder, environment=os.environ | environment, stdin=stdin.encode())


def inline_method_calls() -> list[tuple[inspect.Signature, ast.Call]]:
    """Each call in the text, such as `await receiver.wait_for(…)`, with the signature of the method that it names."""
    text = _FENCED_CODE.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    found: list[tuple[inspect.Signature, ast.Call]] = []
    for span in _INLINE_CODE.findall(text):
        try:
            expression = ast.parse(" ".join(span.split()), mode="eval").body
        except SyntaxError:
            continue
        match expression.value if isinstance(expression, ast.Await) else expression:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) as call if name in _NAMED_OBJECTS:
                found.append((inspect.signature(getattr(_NAMED_OBJECTS[name], method)), call))
            case _:
                pass
    return found


def test_the_method_calls_in_the_text_have_the_arguments_that_their_methods_require() -> None:
    found = inline_method_calls()

    for signature, call in found:  # None stands for the object of the method
        signature.bind(None, *call.args, **{each.arg or "": each.value for each in call.keywords})
    assert {"wait_for", "put_webhook", "resume"} <= {
        call.func.attr for _, call in found if isinstance(call.func, ast.Attribute)
    }


def test_the_recipes_of_clients_are_what_the_interop_runs_write() -> None:
    """Each call in the column "what to set" stands in a driver that a run of `scripts/interop` has executed."""
    table = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("| client | what to set |")[2].partition("\n\n")[0]
    )
    drivers = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts/interop_runs/drivers").iterdir())

    calls = set(re.findall(r"\b(\w+)\([^`()]*?(\w*headers)=headers", table))
    assert len(calls) >= 9
    for name, keyword in calls:
        assert re.search(rf"\b{name}\([^\n]*\b{keyword}=", drivers), name


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        yield receiver


@pytest.fixture(scope="module")
async def service_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """A whole service as in `serve --dev`, with its demo upstream, for all snippets: the demo takes seconds of CPU to start."""
    settings = load_settings(
        database_url=f"sqlite:///{tmp_path_factory.mktemp('readme') / 'ringback.db'}",
        auth="off",
        callback_private_cidrs=("127.0.0.0/8",),
        callback_http=True,
        allowed_hosts=("127.0.0.1",),
    )
    demo = parse_upstream_option(f"demo={sys.executable} -m ringback.cli.demo_upstream")
    stop = asyncio.Event()
    async with open_application(settings, [demo]) as app, asyncio.TaskGroup() as group:
        group.create_task(app.run(stop))
        async with serving(app.api) as server:
            yield f"http://127.0.0.1:{server.port}"
            stop.set()


@pytest.mark.requirement("R21")
async def test_the_curl_session_registers_calls_receives_a_callback_and_resumes(
    service_url: str, receiver: Receiver, tmp_path: Path
) -> None:
    register, start, resume, recover = (
        code.replace("http://127.0.0.1:9000/callbacks", receiver.url()) for code in snippets("curl")
    )

    registered = json.loads(await run_snippet("sh", "-ec", register, folder=tmp_path, RINGBACK_URL=service_url))
    (listen,) = snippets("curl-listen")
    listening = listen.replace("ringback listen", "echo ringback listen")
    listener = await run_snippet("sh", "-ec", listening, folder=tmp_path)
    started = json.loads(await run_snippet("sh", "-ec", start, folder=tmp_path, RINGBACK_URL=service_url))
    resumed = json.loads(await run_snippet("sh", "-ec", resume, folder=tmp_path, RINGBACK_URL=service_url))
    listed = json.loads(await run_snippet("sh", "-ec", recover, folder=tmp_path, RINGBACK_URL=service_url))
    async with asyncio.timeout(WAIT_SECONDS):
        await receiver.arrived.wait()

    assert registered["secret"].startswith("whsec_")
    assert listener.split() == ["ringback", "listen", "--port", "9000", "--secret", registered["secret"]]
    assert (resumed["call"]["status"], resumed["call"]["outcome"]) == ("completed", "result")
    assert resumed["result"]["structuredContent"] == {"result": 25997}
    assert [call["id"] for call in listed["calls"]] == [started["call"]["id"]]
    callback = receiver.requests[0]
    standard_webhooks.verify(callback.headers, callback.body, [registered["secret"]], now=SystemClock().now())
    shown = re.search(r"```json\n(\{\"eventId\".*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert json.loads(callback.body)["data"].keys() == json.loads(shown[1])["data"].keys()


async def test_the_snippets_about_what_happens_are_answered(service_url: str, tmp_path: Path) -> None:
    (portal,), (alerts,) = snippets("portal"), snippets("alerts")

    link = json.loads(await run_snippet("sh", "-ec", portal, folder=tmp_path, RINGBACK_URL=service_url))
    webhook = json.loads(await run_snippet("sh", "-ec", alerts, folder=tmp_path, RINGBACK_URL=service_url))
    async with httpx.AsyncClient(base_url=service_url, follow_redirects=True, timeout=WAIT_SECONDS) as browser:
        overview = (await browser.get("/v1/insights?hours=24")).json()
        pages = [await browser.get(path) for path in ("/ui", "/ui/calls")]

    assert len(overview["hours"]) == 24
    assert (link["client_session_id"], "/ui/portal?link=" in link["url"]) == ("session-7", True)
    assert webhook["hears"].endswith(
        "webhook.failing, webhook.recovered, webhook.suspended about your other webhooks, from now on."
    )
    assert [(page.status_code, "<h1" in page.text) for page in pages] == [(200, True)] * 2


async def test_the_connect_snippet_moves_the_servers_of_a_client_and_an_undo_gives_the_same_bytes(
    tmp_path: Path,
) -> None:
    (code,) = snippets("connect")
    client_file = tmp_path / ".cursor" / "mcp.json"
    client_file.parent.mkdir()
    client_file.write_text('{"mcpServers": {"time": {"command": "mcp-server-time"}}}  // mine\n', encoding="utf-8")
    before = client_file.read_bytes()
    commands = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    folders = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}

    async with forked_ringback_program() as program:
        commands["PATH"] = f"{program}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        printed = await run_snippet("sh", "-ec", code, folder=tmp_path, **commands, **folders)
    connected = client_file.read_text(encoding="utf-8")
    undo = ("connect", "cursor", "--undo")
    async with running_forked_command(*undo, folder=tmp_path, environment=os.environ | commands | folders) as undoing:
        await asyncio.wait_for(undoing.wait(), WAIT_SECONDS)

    assert "time" in printed
    assert "mcp-server-time" not in connected
    assert connected.endswith("// mine\n")
    assert client_file.read_bytes() == before


async def test_the_synchronous_client_snippet_prints_the_result(service_url: str, tmp_path: Path) -> None:
    (code,) = snippets("python-sync")

    printed = await run_python(code, folder=tmp_path, RINGBACK_URL=service_url)

    assert printed.startswith("result {")
    assert "'structuredContent': {'result': 17984}" in printed


@pytest.mark.requirement("R05")
async def test_the_durable_caller_snippet_prints_the_result(service_url: str, tmp_path: Path) -> None:
    (code,) = snippets("python-durable")

    printed = [await run_python(code, folder=tmp_path, RINGBACK_URL=service_url) for _ in range(2)]

    assert all("17984" in each for each in printed)  # the second run finds the call of the first


@pytest.mark.requirement("R21")
async def test_the_receiver_snippet_handles_a_signed_callback(tmp_path: Path) -> None:
    (code,) = snippets("python-receiver")
    body = json.dumps({"eventId": "evt_1", "name": "call.finished", "timestamp": "2026-11-20T17:00:00.000Z", "cursor": "c",
                       "data": {"call_id": "call_1", "correlation_id": "primes", "outcome": "result"}})  # fmt: skip
    timestamp = int(SystemClock().now().timestamp())
    signature = standard_webhooks.sign_message([SECRET], message_id="evt_1", timestamp=timestamp, body=body.encode())
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(timestamp), "webhook-signature": signature}
    script = f"""{code}
import asyncio, httpx
handled = asyncio.Event()
async def main() -> None:
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
            print((await http.post("/callbacks", content={body!r}, headers={headers!r})).status_code)
        print((await receiver.wait_for(correlation_id="primes", timeout_seconds={WAIT_SECONDS})).outcome)
asyncio.run(main())
"""

    printed = await run_python(script, folder=tmp_path, RINGBACK_WEBHOOK_SECRET=SECRET)

    assert "204" in printed
    assert "result" in printed


async def test_the_fastmcp_snippet_serves_tools_and_the_rest_api(tmp_path: Path) -> None:
    (code,) = snippets("python-fastmcp")
    script = f"""{code}
import asyncio, httpx
async def main() -> None:
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as http:
            print((await http.get("/ringback/v1/calls")).json())
asyncio.run(main())
"""

    assert "'calls': []" in await run_python(script, folder=tmp_path)


@pytest.mark.requirement("R31")
async def test_the_server_with_events_of_its_own_returns_them_to_a_poll(tmp_path: Path) -> None:
    (code,) = snippets("python-events")
    script = f"""{code}
import asyncio
from mcp import Client
from ringback.receiver import requests_of_session
async def main() -> None:
    async with Client(server) as client:
        request = requests_of_session(client.session)
        poll = {{"name": "order.shipped", "arguments": {{}}, "cursor": None}}
        start = await request("events/poll", poll)
        await client.call_tool("ship", {{"order_id": "o1"}})
        print((await request("events/poll", poll | {{"cursor": start["cursor"]}}))["events"])
asyncio.run(main())
"""

    assert "'order_id': 'o1'" in await run_python(script, folder=tmp_path)


@pytest.mark.requirement("R17")
async def test_the_example_of_a_subscriber_receives_the_end_of_a_call(service_url: str, tmp_path: Path) -> None:
    code = (ROOT / "scripts/examples/event_subscriber.py").read_text(encoding="utf-8")
    port = str(free_port())
    callback = {"PORT": port, "CALLBACK_URL": f"http://127.0.0.1:{port}/callbacks"}

    printed = await run_python(code, folder=tmp_path, RINGBACK_URL=service_url, **callback)

    assert printed == "call.finished count_primes completed\n"


@pytest.mark.requirement("R16")
async def test_the_example_of_an_mcp_client_prints_the_result_and_receives_a_callback(
    service_url: str, receiver: Receiver, tmp_path: Path
) -> None:
    code = (ROOT / "scripts/examples/mcp_client.py").read_text(encoding="utf-8")
    callback = {"CALLBACK_URL": receiver.url(), "CALLBACK_SECRET": SECRET}

    printed = await run_python(code, folder=tmp_path, RINGBACK_URL=service_url, **callback)
    (sent,) = await receiver.wait_for_requests(1)

    assert "9592" in printed
    assert json.loads(sent.body)["data"]["correlation_id"] == "primes"
    standard_webhooks.verify(sent.headers, sent.body, [SECRET], now=SystemClock().now())


@pytest.mark.requirement("R23")
@pytest.mark.parametrize("language", ["python", "node"])
async def test_the_verifying_snippets_accept_ringbacks_signature_and_reject_another(
    language: str, tmp_path: Path
) -> None:
    (code,) = snippets(f"{language}-verify")
    body = '{"eventId":"evt_1"}'
    timestamp = int(SystemClock().now().timestamp())
    good = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(timestamp),
        "webhook-signature": standard_webhooks.sign_message(
            [SECRET], message_id="evt_1", timestamp=timestamp, body=body.encode()
        ),
    }
    bad = good | {"webhook-id": "evt_2"}
    question = json.dumps({"secret": SECRET, "body": body, "good": good, "bad": bad})

    answer = await (_run_python if language == "python" else _run_node)(code, question, tmp_path)

    assert json.loads(answer) == {"accepted": {"eventId": "evt_1"}, "refused": True}


async def _run_python(code: str, question: str, folder: Path) -> str:
    script = f"""{code}
import json, sys
from standardwebhooks import WebhookVerificationError
asked = json.load(sys.stdin)
accepted = handle(asked["secret"], asked["good"], asked["body"].encode())
try:
    handle(asked["secret"], asked["bad"], asked["body"].encode())
    refused = False
except WebhookVerificationError:
    refused = True
print(json.dumps({{"accepted": accepted, "refused": refused}}))
"""
    return await run_python(script, folder=folder, stdin=question)


async def _run_node(code: str, question: str, folder: Path) -> str:
    script = f"""{code}
import {{ readFileSync }} from "node:fs";
const asked = JSON.parse(readFileSync(0, "utf8"));
const accepted = handle(asked.secret, asked.good, asked.body);
let refused = false;
try {{ handle(asked.secret, asked.bad, asked.body); }} catch {{ refused = true; }}
console.log(JSON.stringify({{ accepted, refused }}));
"""
    installed = await npm.install_npm_package("express", "5.1.0", "standardwebhooks@1.1.1")
    (folder / "node_modules").symlink_to(installed / "node_modules")
    (folder / "verify.mjs").write_text(script, encoding="utf-8")
    return await run_snippet("node", "verify.mjs", folder=folder, stdin=question)
