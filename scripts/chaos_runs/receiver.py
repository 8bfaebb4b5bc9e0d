"""The receiver of all callbacks, as a process. It writes each callback to its file and syncs it before it responds."""

import json
import time
from pathlib import Path

from scripts.chaos_runs.journal import Journal
from scripts.chaos_runs.upstreams import serve
from tests.support.upstreams import Receive, Scope, Send, send_response


def main(*, port: int, ledger: Path, forgets: bool) -> None:
    """With `forgets` it acknowledges without storing, which the checker must detect."""
    kept = Journal(ledger)

    async def receive_callback(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if not forgets:
            ids = {"message_id": headers["webhook-id"], "webhook": headers["x-mcp-subscription-id"]}
            signed_ago = time.time() - int(headers["webhook-timestamp"])  # noqa: TID251 - the receiver's clock is right
            kept.append(**ids, body=json.loads(body), signed_seconds_ago=signed_ago)
        await send_response(send, 200, "text/plain", b"")

    serve(receive_callback, port)
