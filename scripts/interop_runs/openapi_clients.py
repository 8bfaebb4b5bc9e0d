"""Lints openapi/ringback.json and runs clients that are generated from it: `scripts/interop openapi`.

Redocly and Spectral must find no error; the rules that are off stand with their reasons in the folder `openapi`. Then the
clients of openapi-python-client, @hey-api/openapi-ts, and openapi-typescript with openapi-fetch run the whole loop against a
Ringback: start, wait, result, resume, the life of a webhook, and a problem. TypeScript must compile without an error. Exits
with 1 on a failure, and with 2 if something could not be installed.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.interop_runs.environments import (
    ERROR_CHARACTERS,
    ROOT,
    Environment,
    InstallFailed,
    default_cache,
    install_environment,
)
from scripts.interop_runs.pins import Ecosystem, Pin
from scripts.interop_runs.stage import StageProcess, make_ringback, running
from scripts.ports import free_port

DOCUMENT: Final = ROOT / "openapi" / "ringback.json"
FILES: Final = Path(__file__).parent / "openapi"
STEP_SECONDS: Final = 300.0
PYTHON_PINS: Final = {"openapi-python-client": Pin("0.29.1")}
NPM_PINS: Final = {
    "@redocly/cli": Pin("2.77.0"),
    "@stoplight/spectral-cli": Pin("6.16.3"),
    "@hey-api/openapi-ts": Pin("0.99.0"),
    "openapi-typescript": Pin("7.13.0"),
    "openapi-fetch": Pin("0.17.0"),
    "@types/node": Pin("22.20.5"),
    "typescript": Pin("5.9.3"),
    "tsx": Pin("4.23.15"),
}
TSC_OPTIONS: Final = (
    *("--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"),
    *("--module", "esnext", "--moduleResolution", "bundler", "--allowImportingTsExtensions"),
)
"""As the common bundlers compile."""


def main() -> int:
    try:
        node = install_environment("openapi-clients", Ecosystem.NPM, NPM_PINS, default_cache())
        python = install_environment("openapi-clients", Ecosystem.PYPI, PYTHON_PINS, default_cache())
    except InstallFailed as problem:
        print(f"interop: {problem}", file=sys.stderr)
        return 2
    folder = default_cache() / "runs" / "openapi-clients"  # the logs of the last run stay there
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in FILES.glob("*.ts"):
        shutil.copy(file, node.folder / file.name)  # Node looks for packages beside the importing file
    return 0 if asyncio.run(run_all(node, python, folder)) else 1


async def run_all(node: Environment, python: Environment, folder: Path) -> bool:
    """Whether every step passes."""
    port = free_port()
    upstream = [sys.executable, "-m", "scripts.interop_runs.proxy_upstream", str(port)]
    ringback = make_ringback(folder / "ringback", {"stage": {"url": f"http://127.0.0.1:{port}/mcp"}})
    async with running([StageProcess("the upstream", upstream, port, folder / "upstream.log"), ringback]):
        url = ringback.mcp_url.removesuffix("/mcp")
        return all([await run_step(*step) for step in list_steps(node, python, folder, url)])


def list_steps(
    node: Environment, python: Environment, folder: Path, url: str
) -> Sequence[tuple[str, Environment, Path, Sequence[str]]]:
    """Each step's name, environment, folder and command."""
    document, generated = str(DOCUMENT), folder / "generated"
    commands = {
        "redocly": ["redocly", "lint", document, "--config", str(FILES / "redocly.yaml")],
        "spectral": ["spectral", "lint", document, "--ruleset", str(FILES / "spectral.yaml")],
        "openapi-typescript": ["openapi-typescript", document, "-o", "api.ts", "--default-non-nullable=false"],
        "hey-api": ["openapi-ts", "-i", document, "-o", "hey"],
        "compiled": ["tsc", *TSC_OPTIONS, "loop_hey_api.ts", "loop_fetch.ts"],
        "loop of openapi-fetch": ["tsx", "loop_fetch.ts", url],
        "loop of hey-api": ["tsx", "loop_hey_api.ts", url],
    }
    generate = [
        "openapi-python-client",
        "generate",
        "--path",
        document,
        "--meta",
        "none",
        "--output-path",
        str(generated),
    ]
    return [
        *((name, node, node.folder, command) for name, command in commands.items()),
        ("openapi-python-client", python, folder, generate),
        ("loop of Python", python, folder, ["python", str(FILES / "loop.py"), url]),
    ]


async def run_step(name: str, environment: Environment, folder: Path, command: Sequence[str]) -> bool:
    """Run a program of the environment in the folder, and print what it says if it fails."""
    variables = {**environment.variables(), "PYTHONPATH": str(folder)}
    program = str(environment.bin / command[0])
    done = await asyncio.to_thread(
        subprocess.run,
        [program, *command[1:]],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    said = (done.stdout + done.stderr).strip()[-ERROR_CHARACTERS:]
    print(f"{name:<22} passed" if done.returncode == 0 else f"{name:<22} FAILED\n{said}", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
