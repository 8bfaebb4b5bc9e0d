"""Runs Ringback behind real proxies: `scripts/interop proxies [NAME …]`. Exits with 1 if a check fails, 2 without a proxy.

Each proxy gets the file of scripts/deploy, once with Ringback at the root of a host and once below a path. The checks of one
run are concurrent, because the longest waits decide how long it takes: about a minute.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.interop_runs.proxy_checks import CHECKS
from scripts.interop_runs.proxy_stage import PROXIES, Place, Proxy, ProxyMissing, ProxyStage, open_proxy_stage


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/interop proxies")
    parser.add_argument("name", nargs="*", help="nginx, caddy, haproxy; default: all")
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help="may be repeated; default: all")
    options = parser.parse_args()
    try:
        chosen = [proxy for proxy in PROXIES if not options.name or proxy.name in options.name]
        results = [asyncio.run(run_proxy(proxy, place, options.only)) for proxy in chosen for place in Place]
    except ProxyMissing as problem:
        print(f"interop: {problem}", file=sys.stderr)
        return 2
    return 0 if all(results) else 1


async def run_proxy(proxy: Proxy, place: Place, only: Sequence[str]) -> bool:
    """Whether all checks pass."""
    checks = {name: check for name, check in CHECKS.items() if not only or name in only}
    with TemporaryDirectory(prefix="ringback-proxy-") as folder:
        async with open_proxy_stage(proxy, place, Path(folder)) as stage:
            passed = await asyncio.gather(
                *(run_check(f"{proxy.name:<8} {place:<5} {name:<11}", check, stage) for name, check in checks.items())
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
