"""An MCP server whose tool takes several seconds: it reads and measures every file below a folder.

python measure_files.py --port 9001            # streamable HTTP on http://127.0.0.1:9001/mcp
python measure_files.py --stdio                # the same over standard input and output

It uses nothing of Ringback. It reads only files below `--root` (default: the current folder).

    pip install "mcp>=2.3"
"""

import argparse
import hashlib
import os
from pathlib import Path
from typing import Annotated

import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

FILES_MAX = 10_000
FILE_BYTES_MAX = 64 * 1024 * 1024


class FileMeasure(BaseModel):
    path: str
    bytes: int
    lines: int
    sha256: str
    fingerprint: str = Field(description="SHA3-512 over the content, chained `rounds` times")


class FolderMeasure(BaseModel):
    folder: str
    rounds: int
    files: int
    bytes: int
    lines: int
    sha256: str = Field(description="over the digests of all files, in the order of their paths")
    largest: FileMeasure | None


def measure_server(root: Path) -> MCPServer:
    server = MCPServer("measure-files", instructions="Measures the files below a folder.")

    @server.tool(structured_output=True)
    async def measure_files(  # pyright: ignore[reportUnusedFunction] - the decorator has registered it
        folder: Annotated[str, Field(description="The folder whose files are measured, absolute or below the root")],
        context: Context,
        rounds: Annotated[int, Field(ge=1, le=1_000_000, description="How often each file is read through")] = 400,
    ) -> FolderMeasure:
        """Read every file below a folder `rounds` times; sizes, lines and digests. Reports progress after each file."""
        paths = await anyio.to_thread.run_sync(_files_below, root, folder)
        measures: list[FileMeasure] = []
        for path in paths:
            # In a thread, so that the server responds to other requests; the function checks for cancellation.
            measures.append(await anyio.to_thread.run_sync(_measure, root, path, rounds))
            await context.report_progress(len(measures), len(paths), f"measured {measures[-1].path}")
        return _sum_up(folder, rounds, measures)

    return server


def _files_below(root: Path, folder: str) -> list[Path]:
    base = (root / folder).resolve()
    if not base.is_relative_to(root):
        raise ToolError(f"'{folder}' is outside of this server's root folder.")
    if not base.is_dir():
        raise ToolError(f"'{folder}' is not a folder.")
    paths = sorted(path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
    if len(paths) > FILES_MAX:
        raise ToolError(f"'{folder}' has {len(paths)} files; the limit is {FILES_MAX}. Choose a smaller folder.")
    return paths


def _measure(root: Path, path: Path, rounds: int) -> FileMeasure:
    fingerprint = b""
    content = _read(path)
    for _ in range(rounds):
        anyio.from_thread.check_cancelled()
        fingerprint = hashlib.sha3_512(fingerprint + content).digest()
    return FileMeasure(
        path=str(path.relative_to(root)),
        bytes=len(content),
        lines=content.count(b"\n"),
        sha256=hashlib.sha256(content).hexdigest(),
        fingerprint=fingerprint.hex(),
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > FILE_BYTES_MAX:
                raise ToolError(f"{path.name} is larger than {FILE_BYTES_MAX} bytes.")
            return file.read()
    except OSError as error:
        raise ToolError(f"{path.name} cannot be read: {error.strerror}.") from None


def _sum_up(folder: str, rounds: int, measures: list[FileMeasure]) -> FolderMeasure:
    digests = "".join(measure.sha256 for measure in measures)
    return FolderMeasure(
        folder=folder,
        rounds=rounds,
        files=len(measures),
        bytes=sum(measure.bytes for measure in measures),
        lines=sum(measure.lines for measure in measures),
        sha256=hashlib.sha256(digests.encode()).hexdigest(),
        largest=max(measures, key=lambda measure: measure.bytes, default=None),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    transport = parser.add_mutually_exclusive_group(required=True)
    transport.add_argument("--port", type=int, help="serve streamable HTTP on this port of 127.0.0.1")
    transport.add_argument("--stdio", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(), help="nothing outside of this folder is read")
    options = parser.parse_args()
    server = measure_server(options.root.resolve())
    if options.stdio:
        server.run("stdio")
    else:
        server.run("streamable-http", port=options.port)


if __name__ == "__main__":
    main()
