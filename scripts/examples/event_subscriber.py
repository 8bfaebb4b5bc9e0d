"""Subscribes at any MCP server with Events, and prints the end of a call: RINGBACK_URL, CALLBACK_URL and PORT say where.

`EventSubscriber` refreshes the subscription in time, and polls the events that a webhook has lost.

    pip install "ringback[mcp]" uvicorn
"""

import asyncio
import os

import uvicorn
from mcp import Client

from ringback.receiver import Callback, EventSubscriber, ReceiverApp, requests_of_session


async def main() -> None:
    arrived = asyncio.Event()

    async def handle(callback: Callback) -> None:
        print(callback.name, callback.data["tool"], callback.data["status"])
        arrived.set()

    async with Client(f"{os.environ['RINGBACK_URL']}/mcp") as client:
        subscriber = EventSubscriber(requests_of_session(client.session), url=os.environ["CALLBACK_URL"])
        receiver = ReceiverApp(subscriber.registry, on_callback=handle, recover=subscriber.recover)
        server = uvicorn.Server(uvicorn.Config(receiver, port=int(os.environ["PORT"]), log_level="warning"))
        async with receiver, subscriber:
            serving = asyncio.create_task(server.serve())
            await subscriber.subscribe("call.finished", {"upstream": "demo"})
            await client.call_tool("demo__count_primes", {"below": 300000})
            await arrived.wait()
            server.should_exit = True
            await serving


asyncio.run(main())
