"""Servers on this machine are reached directly: a proxy of the environment (HTTP_PROXY) cannot reach them."""

import httpx

from ringback.client.arguments import is_on_this_machine


def bypass_proxy_here(*urls: str) -> dict[str, None]:
    """The `mounts` of an httpx client that sends requests for those of these URLs that are on this machine without a proxy.

    `RingbackClient` does the same.
    """
    return {f"all://{httpx.URL(url).netloc.decode('ascii')}": None for url in urls if is_on_this_machine(url)}
