"""`scripts/bench seal`: what `RINGBACK_SEAL=all` costs, compared with `secrets`, in the loop of `full_loop`.

Two services run at once, each in its own process; they take turns. `secrets` seals webhook secrets and bodies of deliveries;
`all` seals arguments and results too.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from scripts.benchmarks.full_loop import CONCURRENCY, compare_services, report_variant
from scripts.benchmarks.measurement import Json, machine_facts, percentile, summary
from scripts.benchmarks.service import Service, python_process, ringback
from scripts.ports import free_port

SECRETS, ALL = "secrets", "all"
"""The values of RINGBACK_SEAL, the default first."""
VARIANTS: Final = (SECRETS, ALL)


async def seal(*, rounds: int, seconds: float) -> Json:
    async with AsyncExitStack() as stack:
        services = await _start_services(stack)
        compared = await compare_services(stack, services, rounds=rounds, seconds=seconds)
    unloaded, saturated = compared.unloaded, compared.saturated
    return {
        "machine": machine_facts(),
        "rounds": rounds,
        "at_once": CONCURRENCY,
        "cpu_ratio": summary([each[ALL].cpu_us / each[SECRETS].cpu_us for each in saturated]),
        "loops_per_second_ratio": summary([each[ALL].rate / each[SECRETS].rate for each in saturated]),
        "accept_p50_ratio": summary(
            [percentile(each[ALL].accepts, 0.50) / percentile(each[SECRETS].accepts, 0.50) for each in unloaded], 2
        ),
        **{name: report_variant(name, unloaded, saturated) for name in VARIANTS},
    }


async def _start_services(stack: AsyncExitStack) -> dict[str, Service]:
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ringback-bench-")))
    upstream_port = free_port()
    upstream_url = f"http://127.0.0.1:{upstream_port}/mcp"
    upstream = python_process("scripts.benchmarks.lean_upstream", str(upstream_port), log=folder / "upstream")
    await stack.enter_async_context(upstream)
    stage: dict[str, Any] = {"url": upstream_url, "ringback": {"max_concurrent": 256}}
    services: dict[str, Service] = {}
    for name in VARIANTS:
        (folder / name).mkdir()
        service = ringback(
            folder / name, upstreams={"stage": stage}, upstream_url=upstream_url, environment={"RINGBACK_SEAL": name}
        )
        services[name] = await stack.enter_async_context(service)
    return services
