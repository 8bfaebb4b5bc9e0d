"""A program `ringback` for the PATH of a shell, without the half second of CPU for importing the command.

    async with forked_ringback_program() as folder:
        environment = {"PATH": f"{folder}:{os.environ['PATH']}"}

The program sends its arguments, folder and environment to the test's process, which runs the command in a forked process
and returns both outputs and the exit code. Standard input is empty. test_installs runs the program that users have.
"""

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.forked_commands import running_forked_command

_PROGRAM: Final = f"""#!{sys.executable} -IS
import json, os, pathlib, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(str(pathlib.Path(__file__).with_name("socket")))
    connection.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    out, error, code = json.loads(connection.makefile("rb").readline())
sys.stdout.write(out)
sys.stderr.write(error)
sys.exit(code)
"""
_REQUEST_BYTES_MAX: Final = 1_000_000


@asynccontextmanager
async def forked_ringback_program() -> AsyncGenerator[Path]:
    """The folder of the program."""
    with TemporaryDirectory(prefix="ringback-") as name:  # the path of a Unix socket is at most 107 bytes long
        folder = Path(name)
        program = folder / "ringback"
        program.write_text(_PROGRAM, encoding="utf-8")
        program.chmod(0o700)
        async with await asyncio.start_unix_server(_run_command, folder / "socket", limit=_REQUEST_BYTES_MAX):
            yield folder


async def _run_command(reader: StreamReader, writer: StreamWriter) -> None:
    arguments, folder, environment = json.loads(await reader.readline())
    async with running_forked_command(*arguments, folder=Path(folder), environment=environment) as command:
        out, error = await command.communicate()
    writer.write(json.dumps([out.decode(), error.decode(), command.returncode]).encode() + b"\n")
    writer.close()
