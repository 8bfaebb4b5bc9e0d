"""A service that a developer writes in an afternoon instead of using Ringback.

    python -m scripts.benchmarks.naive_service PORT UPSTREAM_URL DATABASE

It accepts a call, stores it, calls the tool in a task of the event loop, stores the result and sends one signed POST. It has no
retries, leases, recovery, limits or principals: the minimum that works while nothing fails.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from mcp import Client
from pydantic import BaseModel

SECRET = secrets.token_bytes(32)


class StartCall(BaseModel):
    tool: str
    arguments: dict[str, Any] = {}
    correlation_id: str | None = None
    callback: dict[str, str]


def create_app(upstream_url: str, database: str) -> FastAPI:
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE calls (id TEXT PRIMARY KEY, request TEXT, status TEXT, result TEXT)")
    running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with Client(upstream_url) as client, httpx.AsyncClient(trust_env=False) as http:
            app.state.client, app.state.http = client, http
            yield

    app = FastAPI(lifespan=lifespan)

    async def run(call_id: str, request: StartCall) -> None:
        result = await app.state.client.call_tool(request.tool, request.arguments)
        text = result.model_dump_json()
        db.execute("UPDATE calls SET status = 'completed', result = ? WHERE id = ?", (text, call_id))
        body = json.dumps(
            {"call_id": call_id, "status": "completed", "correlation_id": request.correlation_id}
        ).encode()
        now = str(int(time.time()))  # noqa: TID251 - a naive service uses the wall clock
        signature = hmac.new(SECRET, f"{call_id}.{now}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"webhook-id": call_id, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
        (await app.state.http.post(request.callback["url"], content=body, headers=headers)).raise_for_status()
        db.execute("UPDATE calls SET status = 'delivered' WHERE id = ?", (call_id,))

    @app.post("/v1/calls", status_code=202)
    async def start(request: StartCall) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - FastAPI calls it
        call_id = f"call_{secrets.token_hex(12)}"
        db.execute("INSERT INTO calls VALUES (?, ?, 'working', NULL)", (call_id, request.model_dump_json()))
        task = asyncio.create_task(run(call_id, request))
        running.add(task)
        task.add_done_callback(running.discard)
        return {"id": call_id, "status": "working"}

    return app


if __name__ == "__main__":
    app = create_app(sys.argv[2], sys.argv[3])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="warning")
