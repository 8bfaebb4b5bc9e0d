"""A FastMCP server whose slow tool calls back: `python fastmcp_server.py`, and `… stdio` for clients that start commands.

Then, in a second terminal: `ringback listen --url http://127.0.0.1:8000/ringback`. It prints the end of every call, with a
token that reads the result, also of a call whose client has gone.

    pip install "ringback[server]" fastmcp
"""

import asyncio
import sys

import uvicorn
from fastmcp import Context, FastMCP

from ringback.extension.fastmcp import Callbacks

server = FastMCP("reports")


@server.tool
async def build_report(context: Context, about: str, minutes: float = 5.0) -> str:
    """Work for some minutes."""
    for done in range(10):
        await context.report_progress(done, 10)
        await asyncio.sleep(minutes * 6)
    return f"a report about {about}"


callbacks = Callbacks.embedded(upstream="reports", dev=True)
server.add_extension(callbacks)

if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio", show_banner=False)
    else:
        app = server.http_app()
        callbacks.mount(app)
        uvicorn.run(app, port=8000)
