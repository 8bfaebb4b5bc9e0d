"""`ringback mcp` in a forked process, as the transport of an SDK client.

    Client(forked_bridge("--url", url, folder=tmp_path), mode="legacy")

A client that starts a command starts a new Python, which takes most of a second of CPU to import the bridge. test_stdio_bridge
has such clients.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from tests.support.forked_commands import ForkedCommand, running_forked_command


@asynccontextmanager
async def forked_bridge(
    *options: str, folder: Path, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[TransportStreams]:
    """Run `ringback mcp` with these options, and in this environment instead of the test's; the end of the context kills it."""
    environment = os.environ if environment is None else environment
    read_writer, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, write_reader = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive(process: ForkedCommand) -> None:
        async with read_writer:
            async for line in process.stdout:
                await read_writer.send(SessionMessage(jsonrpc_message_adapter.validate_json(line)))

    async def send(process: ForkedCommand) -> None:
        async with write_reader:
            async for sent in write_reader:
                message = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(f"{message}\n".encode())

    async with (
        running_forked_command("mcp", *options, folder=folder, environment=environment) as process,
        anyio.create_task_group() as group,
        read,
        write,
    ):
        group.start_soon(receive, process)
        group.start_soon(send, process)
        yield read, write
        group.cancel_scope.cancel()
