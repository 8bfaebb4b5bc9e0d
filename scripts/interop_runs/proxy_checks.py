"""What must work through a proxy. Each check returns a sentence about what it saw, or raises `CheckFailed`."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ringback.client import RingbackClient
from scripts.interop_runs.proxy_stage import ProxyStage
from scripts.interop_runs.scenarios import wait_until

WAIT_SECONDS: Final = 45.0
"""The longest wait of a response, by default."""
HEARTBEAT_SECONDS: Final = 15.0
BUFFERING_SECONDS_MAX: Final = 5.0
"""A frame that takes longer was kept by the proxy until more came."""
LARGE_CHARACTERS: Final = 15 * 1024 * 1024
"""Just below the largest result."""
REQUEST_CHARACTERS: Final = 3 * 1024 * 1024
PING_SECONDS: Final = 35.0
"""A tool of this length gets two pings on the stream of its response."""


class CheckFailed(Exception):
    """What differs from the promise."""


def require(fact: object, what: str) -> None:
    if not fact:
        raise CheckFailed(what)


@asynccontextmanager
async def open_client(stage: ProxyStage) -> AsyncGenerator[RingbackClient]:
    async with (
        httpx.AsyncClient(verify=stage.trusted) as http,
        RingbackClient(stage.public_url, api_key=stage.key, http=http) as client,
    ):
        yield client


def open_http(stage: ProxyStage) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {stage.key}"}
    return httpx.AsyncClient(verify=stage.trusted, headers=headers, timeout=2 * WAIT_SECONDS)


async def check_http2(stage: ProxyStage) -> str:
    write = ["-o", "/dev/null", "-w", "%{http_version} %{http_code}"]
    command = ["curl", "-sS", "--cacert", str(stage.authority), *write, f"{stage.public_url}/healthz"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed = (await process.communicate())[0].decode()
    require(printed == "2 200", f"curl got {printed!r} instead of HTTP/2 and 200")
    return "TLS and HTTP/2"


async def check_wait(stage: ProxyStage) -> str:
    """A call that takes longer than the longest wait: the wait ends by itself, and the next one has the result."""
    async with open_client(stage) as client:
        started = await client.start_call("stage", "slow", {"seconds": WAIT_SECONDS + 5})
        began = time.monotonic()
        call = await client.call(started.call.id, wait_seconds=WAIT_SECONDS)
        seconds = time.monotonic() - began
        require(not call.final and seconds > WAIT_SECONDS - 1, f"the wait ended after {seconds:.1f} s as {call.status}")
        require((await client.wait(started.call.id)).final, "the call did not end")
    return f"a wait of {seconds:.0f} s"


async def check_events(stage: ProxyStage) -> str:
    """Frames arrive when they are sent: the first, an event's, and the comments of a silent stream.

    The stream has only the events of its own call: those of other checks at the same time would end its silence.
    """
    label = "events-of-this-check"
    async with (
        open_http(stage) as http,
        open_client(stage) as client,
        http.stream("GET", f"{stage.public_url}/v1/events/stream?correlation_id={label}") as stream,
    ):
        chunks = stream.aiter_text()
        began = time.monotonic()
        await anext(chunks)
        require(time.monotonic() - began < BUFFERING_SECONDS_MAX, "the first frame was kept back")
        started = await client.start_call(
            "stage", "echo", {"text": "hello"}, correlation_id=label, wait_seconds=WAIT_SECONDS
        )
        ended = time.monotonic()
        await _read_until(chunks, started.call.id)
        require(time.monotonic() - ended < BUFFERING_SECONDS_MAX, "an event was kept back")
        await _read_until(chunks, ": still here", count=2)
        silence = time.monotonic() - ended
    require(silence < 2 * HEARTBEAT_SECONDS + BUFFERING_SECONDS_MAX, f"two comments took {silence:.0f} s")
    return f"events at once, two comments in {silence:.0f} s of silence"


async def _read_until(chunks: AsyncIterator[str], text: str, *, count: int = 1) -> None:
    """Read until the text has come so often. One chunk may have several frames."""
    read = ""
    async with asyncio.timeout(2 * WAIT_SECONDS):
        while read.count(text) < count:
            read += await anext(chunks)


async def check_large(stage: ProxyStage) -> str:
    """A large result arrives whole and in parts, and a large request arrives."""
    async with open_client(stage) as client, open_http(stage) as http:
        started = await client.start_call("stage", "large", {"characters": LARGE_CHARACTERS})
        call = await client.wait(started.call.id)
        url = f"{stage.public_url}/v1/calls/{call.id}/result"
        whole = (await http.get(url)).content
        part = await http.get(url, headers={"Range": "bytes=100-199"})
        text = "y" * REQUEST_CHARACTERS
        echoed = await client.start_call("stage", "echo", {"text": text}, wait_seconds=WAIT_SECONDS)
    require(hashlib.sha256(whole).hexdigest() == call.result_sha256, f"of {call.result_bytes} bytes, {len(whole)} came")
    require((part.status_code, part.content) == (206, whole[100:200]), f"a range got {part.status_code}")
    require(echoed.call.status == "completed", "a large request failed")
    return f"a result of {len(whole) / 1e6:.0f} MB, whole and in part, and a request of {len(text) / 1e6:.0f} MB"


async def check_legacy(stage: ProxyStage) -> str:
    return await _check_era(stage, "legacy")


async def check_modern(stage: ProxyStage) -> str:
    return await _check_era(stage, "auto")


async def _check_era(stage: ProxyStage, mode: Any) -> str:
    """A quick tool, and one whose response stream is silent but for pings."""
    headers = {"Authorization": f"Bearer {stage.key}"}
    url = f"{stage.public_url}/mcp/stage?wait={WAIT_SECONDS:g}"
    timeout = httpx2.Timeout(30, read=2 * WAIT_SECONDS)
    async with (
        httpx2.AsyncClient(verify=stage.trusted, headers=headers, timeout=timeout) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        quick = await client.call_tool("echo", {"text": "hello"})
        require("hello" in str(quick.content), f"echo returned {quick.content}")
        began = time.monotonic()
        done = await client.call_tool("slow", {"seconds": PING_SECONDS})
        require("done" in str(done.content), f"slow returned {done.content}")
        version = client.session.protocol_version
    return f"MCP {version}, and a tool of {time.monotonic() - began:.0f} s on its stream"


async def check_public_url(stage: ProxyStage) -> str:
    """Everything that a response names leads back through the proxy."""
    base, host = stage.public_url, stage.public_url.removesuffix("/ringback")
    async with open_http(stage) as http:
        created = await http.post(f"{base}/v1/webhooks", json={"url": "https://agent.example/callback"})
        location = urljoin(str(created.url), created.headers["location"])
        require((await http.get(location)).json()["id"] == created.json()["id"], f"Location leads to {location}")
        problem = await http.get(f"{base}/v1/calls/none")
        meaning = urljoin(str(problem.url), problem.json()["type"])
        require((await http.get(meaning)).is_success, f"the problem's type leads to {meaning}")
        path = urlsplit(base).path
        resource = await http.get(f"{host}/.well-known/oauth-protected-resource{path}/mcp")
        require(resource.is_success and resource.json()["resource"] == f"{base}/mcp", "the OAuth metadata is not found")
        require(
            (await http.get(f"{base}/openapi.json")).json()["servers"] == [{"url": base}], "another server is named"
        )
        require(f"`{base}`" in (await http.get(f"{base}/llms.txt")).text, "/llms.txt names another base")
        same = await http.get(f"{base}/v1/webhooks", headers={"Origin": host})
        other = await http.get(f"{base}/v1/webhooks", headers={"Origin": "https://evil.example"})
        require((same.status_code, other.status_code) == (200, 403), "Origin is judged wrongly")
    return "Location, problem types, OAuth metadata, OpenAPI, llms.txt and Origin"


async def check_callback(stage: ProxyStage) -> str:
    async with open_client(stage) as client, open_http(stage) as http:
        callback = {"url": f"{stage.receiver.url}/resume"}
        started = await client.start_call("stage", "echo", {"text": "hello"}, callback=callback)  # pyright: ignore[reportArgumentType]
        await wait_until(lambda: bool(stage.receiver.callbacks))
        require(stage.receiver.callbacks, "no callback came")
        data: Mapping[str, Any] = stage.receiver.callbacks[-1]["data"]
        resumed = await http.post(data["resume_url"], json={"resume_token": data["resume_token"]})
    require(resumed.json()["call"]["id"] == started.call.id, f"resume_url {data['resume_url']} got {resumed.text}")
    return "a callback whose resume_url resumes the call"


CHECKS: Final[Mapping[str, Callable[[ProxyStage], Awaitable[str]]]] = {
    "http2": check_http2,
    "wait": check_wait,
    "events": check_events,
    "large": check_large,
    "legacy": check_legacy,
    "modern": check_modern,
    "public-url": check_public_url,
    "callback": check_callback,
}
