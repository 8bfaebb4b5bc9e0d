"""The HTTP/1.1 server: uvicorn on llhttp, with a limit on everything that a peer can send, hold or leave unread.

    socket -> protocol.BoundedHttpProtocol -> the ASGI application
                    |        rejections: 400, 408, 414, 431, 503 as problem documents; then the connection is closed
                    v
              connections.ConnectionLimiter: counts connections, in all and by peer, and ends those that exceed a time limit

    limits           every number
    framing          the headers that say where a body ends, and requests that are ambiguous
    flow_control     counts the bytes that the peer has read; sends a head with the first bytes of its body
    error_responses  the rejections, encoded

uvicorn limits neither the request line nor headers, nor the time that a peer takes to send them, nor the number of
connections. All of that comes before authentication, so this package limits it before the application sees a request.
"""

from ringback.http_server.connections import ConnectionLimiter
from ringback.http_server.limits import HttpLimits, compute_connections_max, count_wanted_files
from ringback.http_server.protocol import BoundedHttpProtocol

__all__ = ["BoundedHttpProtocol", "ConnectionLimiter", "HttpLimits", "compute_connections_max", "count_wanted_files"]
