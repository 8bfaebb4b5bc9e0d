"""What the fork server of `tests.support.processes` does once, before it forks: it is the last module that the server imports.

Each service would otherwise take a fifth of the CPU of its start to work out the routes of the API and to copy the memory that
its garbage collector touches.
"""

import gc
from typing import Final

from starlette.types import Scope

from ringback.api import app as ringback_api
from tests.support.authorities import trust_one_authority
from tests.support.shared_setup import make_sharing_describe_app

_UNKNOWN_PATH: Final[Scope] = {"type": "http", "method": "GET", "path": "/no-such-path", "root_path": "", "headers": []}
"""No route matches it, so every route is looked at, and works out what it does once."""

trust_one_authority()
ringback_api.create_documented_app = make_sharing_describe_app(ringback_api.create_documented_app)
for _route in ringback_api.create_documented_app().router.routes:
    _route.matches(_UNKNOWN_PATH)
gc.freeze()
