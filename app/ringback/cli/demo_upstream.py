"""The upstream behind `serve --dev`: an MCP server on stdio with one tool that computes for some seconds.

Ringback starts it as `python -m ringback.cli.demo_upstream`. It is an ordinary MCP server and uses nothing of Ringback.
"""

from itertools import pairwise
from math import isqrt
from typing import Annotated, Final

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import Field

LIMIT_DEFAULT: Final = 4_000_000
"""About five seconds of work on one core of 2024: long enough to see progress, short enough to wait for."""
LIMIT_MAX: Final = 100_000_000
SEGMENTS: Final = 50

server = MCPServer("ringback-demo")


@server.tool()
async def count_primes(
    context: Context,
    below: Annotated[int, Field(ge=0, le=LIMIT_MAX, description="Count the primes below this number.")] = LIMIT_DEFAULT,
) -> int:
    """Count prime numbers slowly, by trial division, and report progress."""
    divisors = [number for number in range(2, isqrt(below) + 1) if is_prime(number)]
    edges = [below * step // SEGMENTS for step in range(SEGMENTS + 1)]
    found = 0
    for done, (start, end) in enumerate(pairwise(edges), start=1):
        found += await anyio.to_thread.run_sync(count_between, start, end, divisors)
        await context.report_progress(done, SEGMENTS, f"{found} primes below {end}")
    return found


def count_between(start: int, end: int, divisors: list[int]) -> int:
    """The number of primes in [start, end). `divisors` are the primes up to the square root of `end`."""
    return sum(1 for number in range(max(start, 2), end) if _has_no_divisor(number, divisors))


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


def _has_no_divisor(number: int, divisors: list[int]) -> bool:
    root = isqrt(number)
    for divisor in divisors:
        if divisor > root:
            return True
        if number % divisor == 0:
            return False
    return True


if __name__ == "__main__":
    server.run("stdio")
