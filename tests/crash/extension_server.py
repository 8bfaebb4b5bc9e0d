"""An MCP server with an embedded Ringback, as a process."""

import socket
import sys
from pathlib import Path

import uvicorn

from ringback.extension import Callbacks
from tests.support.extension_servers import LOCAL_RECEIVER_SETTINGS, UPSTREAM_NAME, make_extension_server


def main(spec: dict[str, str]) -> None:
    callbacks = Callbacks.embedded(
        upstream=UPSTREAM_NAME,
        database_url=f"sqlite:///{Path(spec['folder']) / 'calls.db'}",
        public_url="https://reports.example/ringback",
        settings=LOCAL_RECEIVER_SETTINGS,
        drain_seconds=0.1,
    )
    app = make_extension_server(callbacks, lifespan=callbacks.lifespan).streamable_http_app()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stderr.write(f"service.listening url=http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
        sys.stderr.flush()
        uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none")).run(sockets=[listener])
