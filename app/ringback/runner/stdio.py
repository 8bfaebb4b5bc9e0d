"""The standard error of stdio upstreams: read, bounded, into our log at debug level, never onto our own standard error.

A child that nobody reads blocks as soon as the pipe is full; one that writes what it likes onto our standard error mixes its
words, and perhaps its users' data, into ours.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, TextIO

log = logging.getLogger(__name__)

STDERR_TEXT_BYTES_MAX: Final = 2000
"""What is kept of one piece of output; the rest of it is read and dropped."""
STDERR_PAUSE_SECONDS: Final = 0.01
"""After a whole pipe of it. A child that writes more than 6 MB/s of errors waits, and the event loop hardly notices."""
_READ_BYTES: Final = 65536  # a Linux pipe holds as much


@asynccontextmanager
async def log_stderr(upstream: str) -> AsyncGenerator[TextIO]:
    """A file to start children with; what they write to it is logged until the context is left."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=_READ_BYTES)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    logging_task = asyncio.create_task(_log_chunks(upstream, reader))
    try:
        with os.fdopen(write_end, "w", encoding="utf-8") as errlog:
            yield errlog
    finally:
        logging_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await logging_task
        pipe.close()


async def _log_chunks(upstream: str, reader: asyncio.StreamReader) -> None:
    while chunk := await reader.read(_READ_BYTES):
        if log.isEnabledFor(logging.DEBUG):
            text = chunk[:STDERR_TEXT_BYTES_MAX].decode(errors="replace").rstrip()
            log.debug("upstream.stderr", extra={"upstream": upstream, "text": text})
        if len(chunk) == _READ_BYTES:
            await asyncio.sleep(STDERR_PAUSE_SECONDS)
