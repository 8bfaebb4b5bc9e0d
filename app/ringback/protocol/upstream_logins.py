"""What the service and the commands of its clients both know of upstreams and of logins to them."""

import re
from typing import Final

UPSTREAM_NAME_PATTERN: Final = re.compile(r"[a-z0-9-]{1,24}")
"""URLs contain the name, and tool aliases begin with it. 24 characters leave room within the specification's 64."""
LOOPBACK_CALLBACK_PATH: Final = "/callback"
"""Where `ringback upstreams login` listens, on a free port, followed by the name of the upstream."""
LOGIN_REQUEST_KEY: Final = "ringback/login"
"""The key and the name of the request to sign in to the upstream. Ringback makes it, and no upstream may. It needs no answer:
the call goes on by itself after the login."""


def login_command(upstream: str) -> str:
    """The command with which a person signs in at a terminal. The user of an own service has no key for the login page."""
    return f"ringback upstreams login {upstream}"
