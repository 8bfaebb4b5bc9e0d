"""What a client sets in a run: its session and its callback, by one way, and the key of a tool's run."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from scripts.interop_runs.catalog import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a client sets, by one way: its session, and where the callback goes."""

    way: Way | None
    session: str
    callback_url: str

    @property
    def query(self) -> str:
        values = {"client_session_id": self.session, "callback_url": self.callback_url}
        return f"?{urlencode(values)}" if self.way is Way.QUERY else ""

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {"Ringback-Client-Session-Id": self.session, "Ringback-Callback-Url": self.callback_url}
        return headers if self.way is Way.HEADER else {}

    @property
    def meta(self) -> Mapping[str, Any]:
        meta = {"ringback/clientSessionId": self.session, "ringback/callback": {"url": self.callback_url}}
        return meta if self.way is Way.META else {}

    @property
    def options(self) -> list[str]:
        options = ["--client-session-id", self.session, "--callback-url", self.callback_url]
        return options if self.way is Way.OPTION else []


def new_key() -> str:
    return secrets.token_hex(6)
