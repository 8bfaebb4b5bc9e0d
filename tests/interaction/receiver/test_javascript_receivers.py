"""The receivers for Express and Next.js in scripts/examples/javascript, with the npm package `standardwebhooks`."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.clock import SystemClock
from ringback.receiver import verify
from ringback.signing.secrets import generate_secret
from ringback.signing.standard_webhooks import build_signed_headers
from tests.support import npm
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import SECRET, make_event_body
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

ROOT: Final = Path(__file__).parents[3]
EXAMPLES: Final = ROOT / "scripts" / "examples" / "javascript"
SERVER: Final = ROOT / "tests" / "support" / "javascript_receiver.mjs"
OTHER_SECRET: Final = generate_secret(b"o" * 32)


@dataclass
class NodeReceiver:
    process: Process
    url: str

    async def post(
        self,
        envelope: bytes | dict[str, Any],
        *,
        secret: str = SECRET,
        message_id: str | None = None,
        changed: dict[str, str] | None = None,
    ) -> httpx.Response:
        body = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
        if message_id is None:
            message_id = "msg_1" if isinstance(envelope, bytes) else str(envelope.get("eventId", "msg_1"))
        timestamp = int(SystemClock().now().timestamp())
        headers = build_signed_headers([secret], message_id=message_id, timestamp=timestamp, body=body)
        headers |= {"content-type": "application/json", "x-mcp-subscription-id": "wh_1"}
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            return await client.post(self.url, content=body, headers=headers | (changed or {}))

    async def read_line(self) -> str:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), WAIT_SECONDS)
        return line.decode().strip()


@asynccontextmanager
async def running_receiver(kind: str, folder: Path) -> AsyncGenerator[NodeReceiver]:
    installed = await npm.install_npm_package("express", "5.1.0", "standardwebhooks@1.1.1")
    copied = shutil.copytree(EXAMPLES, folder / "javascript")
    (copied / "node_modules").symlink_to(installed / "node_modules")
    command = [str(copied / "express_receiver.mjs")] if kind == "express" else [str(SERVER), str(copied), kind]
    environment = os.environ | {"RINGBACK_WEBHOOK_SECRET": f"{OTHER_SECRET} {SECRET}", "PORT": "0"}
    process = await asyncio.create_subprocess_exec("node", *command, env=environment, stdout=PIPE, stderr=PIPE)
    try:
        receiver = NodeReceiver(process, "")
        receiver.url = (await receiver.read_line()).removeprefix("Listening on ")
        assert receiver.url, (await process.communicate())[1].decode()
        yield receiver
    finally:
        process.kill()
        await process.communicate()


@pytest.fixture(scope="module")
async def receivers(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Mapping[str, NodeReceiver]]:
    """One process of each kind for all tests. Each test reads all lines that it caused, and has event ids of its own.

    Others for each store: the receivers recognise the ids of the same test on the other store.
    """
    async with AsyncExitStack() as stack:
        yield {
            kind: await stack.enter_async_context(running_receiver(kind, module_path_factory.mktemp(kind)))
            for kind in ("express", "next", "core")
        }


@pytest.mark.requirement("R23")
@pytest.mark.parametrize("kind", ["express", "next"])
async def test_a_receiver_accepts_signed_messages_once_and_rejects_all_others(
    receivers: Mapping[str, NodeReceiver], kind: str
) -> None:
    receiver = receivers[kind]
    accepted = [
        await receiver.post(make_event_body(outcome="result"), changed={"x-mcp-subscription-id": header})
        for header in ("wh_1", "made-up")
    ]
    assert await receiver.read_line() == "call.finished call_1 result c1"
    other_secret = await receiver.post(make_event_body("evt_2"), secret=OTHER_SECRET)
    assert await receiver.read_line() == "call.finished call_1 undefined c1"
    challenge = await receiver.post({"type": "verification", "challenge": "nönce"})
    gap = await receiver.post({"type": "gap", "cursor": "place-7"}, message_id="msg_gap_1")
    assert await receiver.read_line() == "gap"
    hostile = [
        await receiver.post(make_event_body("evt_3"), changed={"webhook-signature": "v1,forged"}),
        await receiver.post(make_event_body("evt_3"), changed={"webhook-signature": "v1"}),
        await receiver.post(make_event_body("evt_3"), changed={"webhook-id": "evt_4"}),
        await receiver.post(make_event_body("evt_3"), changed={"webhook-timestamp": "1"}),
        await receiver.post(make_event_body("evt_3"), secret=generate_secret(b"x" * 32)),
        await receiver.post(b"{"),
        await receiver.post(b"7"),
        await receiver.post(b"null"),
        await receiver.post(b""),
    ]
    too_large = await receiver.post(b"x" * 300_000)
    after = await receiver.post(make_event_body("evt_5"))
    assert await receiver.read_line() == "call.finished call_1 undefined c1"

    assert [answer.status_code for answer in (*accepted, other_secret, gap, after)] == [204] * 5
    assert (challenge.status_code, challenge.json()) == (200, {"challenge": "nönce"})
    assert [answer.status_code for answer in hostile] == [400] * len(hostile)
    assert all(answer.json()["reason"] for answer in hostile)
    assert (too_large.status_code, too_large.content) == (413, b"")


async def test_callbacks_of_a_session_are_handled_one_after_the_other_and_others_meanwhile(
    receivers: Mapping[str, NodeReceiver],
) -> None:
    receiver = receivers["core"]
    async with asyncio.TaskGroup() as group:
        held = make_event_body("evt_1", client_session_id="s1", tool="hold")
        posts = [group.create_task(receiver.post(held)) for _ in range(2)]
        assert await receiver.read_line() == "begin evt_1"
        posts.append(group.create_task(receiver.post(make_event_body("evt_2", client_session_id="s1"))))
        other = await receiver.post(make_event_body("evt_3", client_session_id="s2"))
        assert [await receiver.read_line() for _ in range(2)] == ["begin evt_3", "end evt_3"]
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            await client.post(receiver.url.replace("/callbacks", "/release"))
        assert await receiver.read_line() == "end evt_1"
        assert [await receiver.read_line() for _ in range(2)] == ["begin evt_2", "end evt_2"]
        answers = [other, *await asyncio.gather(*posts)]

    assert [answer.status_code for answer in answers] == [204] * 4


async def test_a_handler_that_fails_or_is_not_ready_gets_the_callback_again(
    receivers: Mapping[str, NodeReceiver],
) -> None:
    receiver = receivers["core"]
    failed = await receiver.post(make_event_body("evt_11", tool="fail"))
    early = await receiver.post(make_event_body("evt_12", tool="not_ready"))
    again = await receiver.post(make_event_body("evt_11"))

    handled = [await receiver.read_line() for _ in range(4)]
    assert handled == ["begin evt_11", "begin evt_12", "begin evt_11", "end evt_11"]
    assert (failed.status_code, early.status_code, again.status_code) == (500, 503, 204)
    assert "inbox" not in failed.text
    assert early.headers["retry-after"] == "2"


@pytest.mark.requirement("R23")
async def test_express_verifies_and_receives_what_ringback_delivers(
    receivers: Mapping[str, NodeReceiver], tmp_path: Path
) -> None:
    receiver = receivers["express"]
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(ControlledUpstream().app()) as upstream,
        running_application(tmp_path, make_http_config(upstream.url), verify_callbacks="always") as ringback,
    ):
        agent = await ringback.create_agent_client("alice")
        await agent.register_webhook(receiver.url, secret=SECRET)
        started = await agent.start_call("stage", "echo", {}, correlation_id="c1")

        assert await receiver.read_line() == f"call.finished {started.call.id} result c1"


@pytest.mark.requirement("R23")
async def test_messages_that_the_npm_package_signs_are_verified(tmp_path: Path) -> None:
    installed = await npm.install_npm_package("express", "5.1.0", "standardwebhooks@1.1.1")
    script = """
import { createRequire } from "node:module";
const { Webhook } = createRequire(`${process.argv[1]}/`)("standardwebhooks");
const now = new Date();
const signature = new Webhook(process.argv[2]).sign("msg_1", now, '{"a":"\\u00e4"}');
console.log(JSON.stringify([signature, Math.floor(now.getTime() / 1000)]));
"""
    process = await asyncio.create_subprocess_exec(
        "node", "--input-type=module", "-e", script, str(installed), SECRET, stdout=PIPE, cwd=tmp_path
    )
    out, _ = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    signature, timestamp = json.loads(out)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(timestamp), "webhook-signature": signature}

    assert verify(headers, '{"a":"ä"}'.encode(), SECRET).message_id == "msg_1"
