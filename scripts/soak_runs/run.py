"""One soak run: prepare, serve, live alone, let the neighbours in, live beside them, and gather what everybody saw."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from ringback.bootstrap import open_api_keys
from ringback.domain.principal import DEFAULT_SCOPES
from scripts.benchmarks.service import free_port
from scripts.soak_runs import crowd, history
from scripts.soak_runs.quiet import Callbacks, Quiet, receiving
from scripts.soak_runs.service import Service, Spec, running, settings_of
from scripts.soak_runs.verdict import Shown
from tests.support.name_servers import HANG, name_server

QUIET: Final = "quiet"
PRINCIPALS: Final = (QUIET, *dict.fromkeys(crowd.PRINCIPAL_OF.values()))
FULL_SIZE_MINUTES: Final = 2.0
"""Shorter runs do with fewer rows: storing all of them takes longer than such a run."""
READY_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = 60.0
"""For calls of neighbours to end: they are given 30 s, and the janitor its turn."""
LOOK_SECONDS: Final = 0.5
OPEN: Final = ("working", "input_required")
CROWD_KINDS_THAT_CALL: Final = ("names", "suspended", "correlated", "garbling", "flooding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    alone_seconds: float
    beside_seconds: float
    size: history.Size = field(default_factory=history.Size)


def plan_of(minutes: float) -> Plan:
    """A fifth of the time alone; at least ten seconds, so that a p99 has a hundred calls under it."""
    seconds = minutes * 60
    alone = max(10.0, seconds / 5)
    size = history.Size() if minutes >= FULL_SIZE_MINUTES else history.Size(archived_calls=5_000, held=1_000)
    return Plan(alone_seconds=alone, beside_seconds=max(10.0, seconds - alone), size=size)


async def run(plan: Plan) -> Shown:
    with TemporaryDirectory(prefix="ringback-soak-") as name:
        async with name_server({}, others=HANG) as names:
            spec = Spec(folder=name, port=free_port(), name_servers=[names.address])
            keys = await _keys(spec)
            say("storing what neighbours have stored before")
            await history.prepare(settings_of(spec), plan.size)
            async with running(spec) as service:
                return await _live(plan, service, spec, keys)


async def _live(plan: Plan, service: Service, spec: Spec, keys: Mapping[str, str]) -> Shown:
    callbacks = Callbacks()
    headers = {"Authorization": f"Bearer {keys[QUIET]}"}
    async with (
        receiving(callbacks),
        httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60) as http,
    ):
        quiet = Quiet(service, http, callbacks)
        await quiet.register()
        await quiet.live(1)  # what the first calls open and import is no part of what is measured
        say(f"alone for {plan.alone_seconds:.0f} s")
        alone = await quiet.live(plan.alone_seconds)
        async with _crowd(service, spec, keys) as neighbours:
            say(f"beside the neighbours for {plan.beside_seconds:.0f} s")
            beside = await quiet.live(plan.beside_seconds)
            done = await neighbours.stop()
    return Shown(alone=alone, beside=beside, crowd=done, stuck=await _stuck(service, keys))


async def _keys(spec: Spec) -> dict[str, str]:
    async with open_api_keys(settings_of(spec)) as keys:
        return {
            principal: (await keys.create_key(principal, name="soak", scopes=DEFAULT_SCOPES, upstreams=None))[1]
            for principal in PRINCIPALS
        }


class _Crowd:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def stop(self) -> dict[str, dict[str, int]]:
        if self._process.stdin is not None:
            self._process.stdin.close()
        output, _ = await asyncio.wait_for(self._process.communicate(), READY_SECONDS)
        if self._process.returncode:
            raise RuntimeError("the crowd failed; its traceback is above")
        return json.loads(output)


@asynccontextmanager
async def _crowd(service: Service, spec: Spec, keys: Mapping[str, str]) -> AsyncGenerator[_Crowd]:
    of_crowd = crowd.Spec(url=service.url, port=spec.port, keys=dict(keys))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scripts.soak_runs.crowd", json.dumps(asdict(of_crowd)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)
        yield _Crowd(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _stuck(service: Service, keys: Mapping[str, str]) -> int:
    """How many calls of neighbours are still open when all of them have had their time."""
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http:
        for _ in range(round(SETTLE_SECONDS / LOOK_SECONDS)):
            if not await _open_calls(http, keys):
                break
            await asyncio.sleep(LOOK_SECONDS)
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


def say(text: str) -> None:
    """Progress, for people; standard output belongs to the result."""
    print(text, file=sys.stderr, flush=True)
