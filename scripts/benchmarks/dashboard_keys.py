"""Keys for the services of `scripts/bench ui`."""

import json
import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from base64 import b64encode
from typing import Final

from ringback.domain.principal import Scope
from ringback.signing.sealing import KEY_BYTES

ENGINE_KEYS: Final = f"benchmark:{b64encode(b'k' * KEY_BYTES).decode()}"
"""The encryption keys of `engine`, which writes the crowd of a database."""


async def create_key(database_url: str, principal: str, *scopes: Scope) -> str:
    """Create an API key without the service. Makes the database if it is missing."""
    options = [option for scope in scopes for option in ("--scope", str(scope))]
    command = (
        "-m",
        "ringback",
        "keys",
        "create",
        principal,
        "--json",
        "--create",
        "--database",
        database_url,
        *options,
    )
    environment = os.environ | {"RINGBACK_SECRET_KEYS": ENGINE_KEYS}
    process = await create_subprocess_exec(sys.executable, *command, stdout=PIPE, env=environment)
    output, _ = await process.communicate()
    return str(json.loads(output)["key"])
