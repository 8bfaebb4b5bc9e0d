"""Checks of a crash test after the service's restart."""

import asyncio
import json
from typing import Any

import httpx

from ringback.waits import wait_first
from tests.support.processes import WAIT_SECONDS, ServiceProcess
from tests.support.receivers import Receiver


async def wait_until_final(running: ServiceProcess, call_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                call = (await client.get(f"/v1/calls/{call_id}", params={"wait_seconds": 10})).json()
                if call["status"] in {"completed", "failed", "cancelled"}:
                    return dict(call)


async def wait_for_finished_events(
    running: ServiceProcess, receiver: Receiver, call_id: str
) -> dict[str, dict[str, Any]]:
    """The `call.finished` callbacks of the call by their webhook-id, once every delivery has been made."""
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                receiver.arrived.clear()
                listed = (await client.get("/v1/deliveries", params={"call_id": call_id})).json()["deliveries"]
                if listed and all(delivery["state"] == "delivered" for delivery in listed):
                    break
                await wait_first(receiver.arrived.wait(), timeout_seconds=0.1)
    # Parses only bodies that contain the call id: in a deep run, each of thousands of calls searches all received bodies.
    about = (request for request in receiver.requests if call_id.encode() in request.body)
    bodies = [(request.headers["webhook-id"], json.loads(request.body)) for request in about]
    return {message_id: body for message_id, body in bodies if body["data"]["call_id"] == call_id}
