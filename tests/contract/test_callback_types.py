"""openapi/callbacks.ts belongs to the OpenAPI document, and a strict TypeScript compiler accepts a receiver that uses it."""

import asyncio
import hashlib
import json
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

import pytest

from ringback.api.openapi_export import render_callbacks_document
from tests.support import npm
from tests.support.limits import WAIT_SECONDS

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "openapi" / "ringback.json"
CALLBACK_TYPES: Final = ROOT / "openapi" / "callbacks.ts"
COMPILER_VERSION: Final = "5.9.3"
GENERATOR: Final = "openapi-typescript"

_SOURCE: Final = re.compile(r"^// Source: sha256 (?P<digest>[0-9a-f]{64})$", re.MULTILINE)
_GENERATOR_VERSION: Final = re.compile(rf"^GENERATOR={GENERATOR}@(?P<version>[0-9.]+)$", re.MULTILINE)


def generator_version() -> str:
    match = _GENERATOR_VERSION.search((ROOT / "scripts" / "openapi").read_text(encoding="utf-8"))
    assert match is not None
    return match["version"]


async def run_script(script: Path, *arguments: str, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "node", str(script), *arguments, cwd=folder, stdout=PIPE, stderr=STDOUT
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()


def test_the_types_were_generated_from_this_document() -> None:
    expected = render_callbacks_document(json.loads(DOCUMENT.read_text(encoding="utf-8")))

    match = _SOURCE.search(CALLBACK_TYPES.read_text(encoding="utf-8"))

    assert match is not None
    assert match["digest"] == hashlib.sha256(expected.encode()).hexdigest(), (
        "Run scripts/openapi and commit the change."
    )


@pytest.mark.requirement("R23")
async def test_a_strict_compiler_accepts_code_that_uses_the_types(tmp_path: Path, *, deep: bool) -> None:
    """A receiver uses openapi/callbacks.ts. With --deep a client also uses types that are generated here."""
    compiler = await npm.install_npm_package("typescript", COMPILER_VERSION)
    shutil.copy(CALLBACK_TYPES, tmp_path)
    await compile_strictly(compiler, "callback_types.ts", folder=tmp_path)
    if not deep:
        return

    await generate_types(tmp_path)
    await compile_strictly(compiler, "registration_types.ts", folder=tmp_path)
    header, types = CALLBACK_TYPES.read_text(encoding="utf-8").split("/**", 1)
    assert header.count("\n") == 3
    assert f"/**{types}" == (tmp_path / "generated.ts").read_text(encoding="utf-8")


async def generate_types(folder: Path) -> None:
    """Write ringback.ts, with the types of the whole document, and generated.ts, with those of callbacks."""
    generator = await npm.install_npm_package(GENERATOR, generator_version()) / "node_modules" / GENERATOR
    callbacks = render_callbacks_document(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    (folder / "callbacks.json").write_text(callbacks, encoding="utf-8")
    for source, *options in (
        # A member of a request with a default may be left out.
        (str(DOCUMENT), "--default-non-nullable", "false", "--output", "ringback.ts"),
        ("callbacks.json", "--root-types", "--root-types-no-schema-prefix", "--output", "generated.ts"),
    ):
        await run_script(generator / "bin" / "cli.js", source, *options, folder=folder)


async def compile_strictly(compiler: Path, name: str, *, folder: Path) -> None:
    """Compile a file of this folder beside the types in the other one."""
    shutil.copy(Path(__file__).parent / name, folder)
    options = ["--strict", "--exactOptionalPropertyTypes", "--noEmit", "--lib", "es2022", "--module", "preserve"]
    await run_script(compiler / "node_modules" / "typescript" / "bin" / "tsc", *options, name, folder=folder)
