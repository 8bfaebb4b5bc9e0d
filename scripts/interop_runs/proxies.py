"""Runs Ringback behind real proxies: `scripts/interop proxies [NAME …]`. Exits with 1 if a check fails, 2 without a proxy.

Each proxy gets the file of scripts/deploy, once with Ringback at the root of a host and once below a path. The checks of one
run are concurrent, because the longest waits decide how long it takes: about a minute.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.interop_runs.proxy_checks import CHECKS
from scripts.interop_runs.proxy_stage import PROXIES, Place, Proxy, ProxyMissing, ProxyStage, open_proxy_stage


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/interop proxies")
    parser.add_argument("name", nargs="*", help="nginx, caddy, haproxy; default: all")
    names = parser.parse_args().name
    try:
        chosen = [proxy for proxy in PROXIES if not names or proxy.name in names]
        results = [asyncio.run(run_proxy(proxy, place)) for proxy in chosen for place in Place]
    except ProxyMissing as problem:
        print(f"interop: {problem}", file=sys.stderr)
        return 2
    return 0 if all(results) else 1


async def run_proxy(proxy: Proxy, place: Place) -> bool:
    """Whether all checks pass."""
    with TemporaryDirectory(prefix="ringback-proxy-") as folder:
        async with open_proxy_stage(proxy, place, Path(folder)) as stage:
            passed = await asyncio.gather(
                *(run_check(f"{proxy.name:<8} {place:<5} {name:<11}", check, stage) for name, check in CHECKS.items())
            )
    return all(passed)


async def run_check(about: str, check: Callable[[ProxyStage], Awaitable[str]], stage: ProxyStage) -> bool:
    try:
        print(f"{about} passed  {await check(stage)}", flush=True)
    except Exception as problem:  # noqa: BLE001 - whatever a client raises is the result of its check
        print(f"{about} FAILED  {type(problem).__name__}: {problem}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
