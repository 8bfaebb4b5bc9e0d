"""The peers by name, for tests that run against each."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.fastmcp_peer import serving_fastmcp_peer, serving_fastmcp_proxy
from tests.support.login_peers.peer import LoginPeer
from tests.support.login_peers.sdk_peer import serving_sdk_peer

PEERS: Final[dict[str, Callable[[], AbstractAsyncContextManager[LoginPeer]]]] = {
    "sdk": lambda: serving_sdk_peer(AccountServer().app),
    "sdk-with-an-issuer-of-its-own": lambda: serving_sdk_peer(AccountServer().app, has_own_origin=True),
    "fastmcp": serving_fastmcp_peer,
    "fastmcp-proxy": serving_fastmcp_proxy,
}
