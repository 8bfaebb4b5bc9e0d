"""The HTTP/1.1 server: uvicorn on llhttp, with a limit on everything that a peer can send, hold or refuse to read.

    socket -> protocol.BoundedHttpProtocol -> the ASGI application
                    |        refusals: 400, 408, 414, 431, 503 as problem documents, then the connection is closed
                    v
              connections.Connections: how many there are in all and of each peer, and which have had their time

    limits       every number
    transport    how much of an answer the peer has read

uvicorn bounds neither a request line nor headers, nor how long a peer takes over them, nor how many connections there are.
All of that happens before authentication, so it is bounded here, before the application sees a request.
"""

from ringback.http_server.connections import ConnectionLimiter
from ringback.http_server.limits import HttpLimits, compute_connections_max
from ringback.http_server.protocol import BoundedHttpProtocol

__all__ = ["BoundedHttpProtocol", "ConnectionLimiter", "HttpLimits", "compute_connections_max"]
