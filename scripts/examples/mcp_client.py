"""Calls a tool through the gateway with a session, a correlation, an idempotency key and a callback in `_meta`.

RINGBACK_URL says where; CALLBACK_URL and CALLBACK_SECRET add the callback.

    pip install "mcp>=2.3"
"""

import asyncio
import os

from mcp import Client
from mcp.types import RequestParamsMeta


async def main() -> None:
    meta: RequestParamsMeta = {
        "ringback/clientSessionId": "session-7",
        "ringback/correlationId": "primes",
        "ringback/idempotencyKey": "primes-7",
    }
    if url := os.environ.get("CALLBACK_URL"):
        meta["ringback/callback"] = {"url": url, "secret": os.environ["CALLBACK_SECRET"]}
    async with Client(os.environ["RINGBACK_URL"] + "/mcp/demo") as client:
        result = await client.call_tool("count_primes", {"below": 100_000}, meta=meta)
        print(result.structured_content, result.meta)


asyncio.run(main())
