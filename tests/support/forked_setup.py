"""What the fork server of `tests.support.processes` does once, before it forks: it is the last module that the server imports.

Each service would otherwise take half of the CPU of its start to migrate an empty database, to work out the routes of the API
and of the dashboard, and to copy the memory that its garbage collector touches.
"""

import functools
import gc
import importlib
from typing import Final
from unittest.mock import Mock

import starlette.routing
from starlette.types import Scope

from ringback.api import app as ringback_api
from ringback.storage.sqlite import database
from ringback.ui.routes import make_ui_routes
from tests.support.authorities import trust_one_authority
from tests.support.shared_setup import make_copying_create_file, make_sharing_describe_app, read_template_file

_UNKNOWN_PATH: Final[Scope] = {"type": "http", "method": "GET", "path": "/no-such-path", "root_path": "", "headers": []}
"""No route matches it, so every route is looked at, and works out what it does once."""
_NO_SERVICE: Final = Mock(config=Mock(public_url="http://127.0.0.1"), portal_origins=())
"""What the dashboard's routes are made for, which no request reaches."""

trust_one_authority()
ringback_api.create_documented_app = make_sharing_describe_app(ringback_api.create_documented_app)
for _route in ringback_api.create_documented_app().router.routes:
    _route.matches(_UNKNOWN_PATH)
starlette.routing.compile_path = functools.cache(starlette.routing.compile_path)
make_ui_routes(_NO_SERVICE)
read_template_file()
database.create_database_file = make_copying_create_file(database.create_database_file)
importlib.import_module("anyio._backends._asyncio")  # anyio imports it when an event loop first runs
gc.freeze()
