"""A receiver with an inbox as a process of its own, which tests start with `running_process` and kill.

The handler appends a line when it begins and one when it ends. With `hold`, it never ends.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn

from ringback.receiver import Callback, ReceiverApp, SQLiteInbox
from tests.support.signed_posts import SECRET


def main(spec: dict[str, Any]) -> None:
    asyncio.run(_receive(Path(spec["folder"]), hold=spec["hold"]))


async def _receive(folder: Path, *, hold: bool) -> None:
    async def handle(callback: Callback) -> None:
        _append(folder, f"begin {callback.client_session_id} {callback.event_id}")
        if hold:
            await asyncio.Event().wait()
        _append(folder, f"end {callback.client_session_id} {callback.event_id}")

    receiver = ReceiverApp(SECRET, on_callback=handle, inbox=SQLiteInbox(folder / "inbox.db"))
    config = uvicorn.Config(receiver, port=0, log_config=None, access_log=False)
    listener = config.bind_socket()
    listener.listen()  # requests wait from now on, until the server has started
    sys.stderr.write(f"service.listening receiver url=http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stderr.flush()
    await uvicorn.Server(config).serve([listener])


def _append(folder: Path, line: str) -> None:
    """One write, which a kill does not divide."""
    file = os.open(folder / "handled.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
