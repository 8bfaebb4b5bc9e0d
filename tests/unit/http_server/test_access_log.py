"""No request is logged line by line: the URL of an MCP endpoint may name a client's callback."""

import logging

from fastapi import FastAPI

from ringback.server import build_http_server


def test_the_server_writes_no_access_log() -> None:
    build_http_server(FastAPI())

    assert not logging.getLogger("uvicorn.access").hasHandlers()
