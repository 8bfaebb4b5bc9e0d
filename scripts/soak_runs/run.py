"""One soak run: stores data, serves, measures alone, starts the hostile clients, measures beside them, collects the results."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from ringback.domain.principal import DEFAULT_SCOPES
from ringback.service_database import open_api_keys
from scripts.ports import free_port
from scripts.soak_runs import hostile_callers as callers
from scripts.soak_runs import hostile_clients as crowd
from scripts.soak_runs import stored_data as history
from scripts.soak_runs.measured_client import Callbacks, MeasuredClient, receiving
from scripts.soak_runs.service import Service, ServiceSpec, make_settings, running_http_upstream, running_service
from scripts.soak_runs.verdict import SoakMeasurements
from tests.support.forked_commands import ForkedCommand, running_forked_script
from tests.support.name_servers import HANG_BEHAVIOUR, name_server

MEASURED_PRINCIPAL: Final = "quiet"
PRINCIPALS: Final = (MEASURED_PRINCIPAL, *dict.fromkeys(crowd.PRINCIPAL_BY_KIND.values()))
FULL_SIZE_MINUTES: Final = 2.0
"""Shorter runs store fewer rows, because storing all of them takes longer than such a run."""
READY_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = 60.0
"""For the hostile clients' calls to end: their timeout is 30 s, plus one round of the janitor."""
POLL_SECONDS: Final = 0.5
OPEN: Final = ("working", "input_required")
CROWD_KINDS_THAT_CALL: Final = ("names", "suspended", "correlated", "garbling", "flooding", "streaming", "reading")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    alone_seconds: float
    beside_seconds: float
    size: history.StoredDataSize = field(default_factory=history.StoredDataSize)
    without: Sequence[str] = ()
    """Kinds of hostile clients that do nothing."""
    webhooks: int = callers.WEBHOOKS
    """Those that match calls by their correlation."""
    timeout_seconds: float = callers.TIMEOUT_SECONDS
    """Of the hostile clients' calls."""


def make_plan(minutes: float, *, without: Sequence[str] = ()) -> SoakPlan:
    """The time alone is a fifth of the run and at least ten seconds, so that a p99 has a hundred calls."""
    seconds = minutes * 60
    alone = max(10.0, seconds / 5)
    size = (
        history.StoredDataSize()
        if minutes >= FULL_SIZE_MINUTES
        else history.StoredDataSize(archived_calls=5_000, held=1_000)
    )
    return SoakPlan(alone_seconds=alone, beside_seconds=max(10.0, seconds - alone), size=size, without=without)


async def run_soak(plan: SoakPlan) -> SoakMeasurements:
    with TemporaryDirectory(prefix="ringback-soak-") as name:
        async with name_server({}, others=HANG_BEHAVIOUR) as names:
            spec = ServiceSpec(folder=name, port=free_port(), name_servers=[names.address], streaming_port=free_port())
            keys = await _keys(spec)
            print_progress("storing the hostile clients' data")
            await history.store_data(make_settings(spec), plan.size)
            async with running_http_upstream(spec), running_service(spec) as service:
                return await run_phases(plan, service, spec, keys)


async def run_phases(plan: SoakPlan, service: Service, spec: ServiceSpec, keys: Mapping[str, str]) -> SoakMeasurements:
    callbacks = Callbacks()
    headers = {"Authorization": f"Bearer {keys[MEASURED_PRINCIPAL]}"}
    async with (
        receiving(callbacks),
        httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60) as http,
    ):
        quiet = MeasuredClient(service, http, callbacks)
        await quiet.register()
        await quiet.run_phase(1)  # warm-up: connections and imports
        print_progress(f"alone for {plan.alone_seconds:.0f} s")
        alone = await quiet.run_phase(plan.alone_seconds)
        async with running_hostile_clients(service, spec, keys, plan) as neighbours:
            print_progress(f"beside the hostile clients for {plan.beside_seconds:.0f} s")
            beside = await quiet.run_phase(plan.beside_seconds)
            done = await neighbours.stop()
    return SoakMeasurements(alone=alone, beside=beside, crowd=done, stuck=await count_stuck_calls(service, keys))


async def _keys(spec: ServiceSpec) -> dict[str, str]:
    async with open_api_keys(make_settings(spec)) as keys:
        return {
            principal: (await keys.create_key(principal, name="soak", scopes=DEFAULT_SCOPES, upstreams=None))[1]
            for principal in PRINCIPALS
        }


class HostileProcess:
    def __init__(self, process: ForkedCommand) -> None:
        self._process = process

    async def stop(self) -> dict[str, dict[str, int]]:
        output, error = await asyncio.wait_for(self._process.communicate(), READY_SECONDS)
        if self._process.returncode:
            raise RuntimeError(f"the hostile clients failed: {error.decode()}")
        return json.loads(output)


@asynccontextmanager
async def running_hostile_clients(
    service: Service, spec: ServiceSpec, keys: Mapping[str, str], plan: SoakPlan
) -> AsyncGenerator[HostileProcess]:
    of_crowd = crowd.HostileSpec(
        url=service.url,
        port=spec.port,
        keys=dict(keys),
        without=list(plan.without),
        webhooks=plan.webhooks,
        timeout_seconds=plan.timeout_seconds,
    )
    async with running_forked_script(
        Path(crowd.__file__), json.dumps(asdict(of_crowd)), folder=Path.cwd(), environment=os.environ
    ) as process:
        await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)
        yield HostileProcess(process)


async def count_stuck_calls(service: Service, keys: Mapping[str, str]) -> int:
    """The number of the hostile clients' calls that are open after their timeout."""
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http:
        for _ in range(round(SETTLE_SECONDS / POLL_SECONDS)):
            if not await _open_calls(http, keys):
                break
            await asyncio.sleep(POLL_SECONDS)
        return await _open_calls(http, keys)


async def _open_calls(http: httpx.AsyncClient, keys: Mapping[str, str]) -> int:
    found = 0
    for principal in CROWD_KINDS_THAT_CALL:
        for status in OPEN:
            response = await http.get(
                f"/v1/calls?status={status}", headers={"Authorization": f"Bearer {keys[principal]}"}
            )
            found += len(response.json()["calls"])
    return found


def print_progress(text: str) -> None:
    """Print progress to standard error; standard output has only the result."""
    print(text, file=sys.stderr, flush=True)
