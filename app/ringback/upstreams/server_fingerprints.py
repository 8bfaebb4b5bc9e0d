"""Which server an upstream's name stands for, as a fingerprint that is stored with each handle of a call.

    config ──▶ fingerprint ──saved with the handle──▶ … another process, or another configuration … ──▶ compared before its use

A name can get another server by a change of the configuration. What a handle contains (a task id, a session id, a requestState)
is for the server that made it, so a call goes on only where the fingerprint is the same. It contains no secret:

    http     scheme, host, port and path of the URL, without user and query, because keys in them are rotated
    stdio    the command, its arguments and the directory it runs in (`cwd`), without the environment

`localhost`, 127.0.0.1 and ::1 count as one host. A handle without a fingerprint is of an older version, and goes on.

A server can move: its URL or command changes, and it still knows its calls. Then its entry has a `server_id`, which is stored
beside the digest of the address. Where handle and entry both have an id, the ids are compared, else the addresses. So an entry
may get an id while calls are open, and nodes without it continue them as long as the address is the same.
"""

import os
from typing import Final
from urllib.parse import urlsplit

from ringback.domain import jsontext
from ringback.domain.call import Call, ServerFingerprint
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from ringback.upstreams.errors import ServerChanged

_DIGEST_LENGTH: Final = 16
"""64 bits: names are compared with their own earlier servers only."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_CHANGES: Final = {
    str(UpstreamTransport.HTTP): "its URL has changed",
    str(UpstreamTransport.STDIO): "its command, the arguments of the command or its directory have changed",
}


def make_server_fingerprint(config: UpstreamConfig) -> ServerFingerprint:
    """The address is the transport and a digest, such as `http:0f3a…`. A digest, because some URLs have a key in their path."""
    server = _list_command(config) if config.transport is UpstreamTransport.STDIO else _split_address(config.url)
    address = f"{config.transport}:{jsontext.sha256(jsontext.dumps(server))[:_DIGEST_LENGTH]}"
    return ServerFingerprint(address, config.server_id)


def _list_command(config: UpstreamConfig) -> list[str | None]:
    """The directory counts: the same `uv run server` starts another program in another one."""
    directory = None if config.cwd is None else os.path.normpath(config.cwd)
    return [directory, config.command, *config.args]


def _split_address(url: str) -> list[str | int | None]:
    """What does not depend on how the URL is written."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    return [
        parts.scheme,
        "localhost" if host in _LOOPBACK_HOSTS else host,
        parts.port or _DEFAULT_PORTS.get(parts.scheme),
        parts.path.rstrip("/"),
    ]


def require_same_server(call: Call, fingerprint: ServerFingerprint) -> None:
    """Raise `ServerChanged` if the call has a handle of another server than the one with this fingerprint."""
    earlier = None if call.handle is None else call.handle.server_fingerprint
    if earlier is None or earlier.is_same_server(fingerprint):
        return
    raise ServerChanged(
        f"The upstream '{call.upstream}' is another server now than the one that ran this call "
        f"({_describe_change(earlier, fingerprint)}). Nothing of the "
        "call was sent to it. The tool may have done its work: find out before you start the call again."
    )


def _describe_change(earlier: ServerFingerprint, current: ServerFingerprint) -> str:
    if earlier.server_id is not None and current.server_id is not None:
        return "its server_id has changed"
    transport = current.address.partition(":")[0]
    same_transport = earlier.address.partition(":")[0] == transport
    return _CHANGES[transport] if same_transport else "it is reached in another way"
