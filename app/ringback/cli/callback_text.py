"""The text of a callback for a terminal."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ringback.cli.output import escape_control_characters, format_json_time
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN, login_command
from ringback.receiver import Callback

SHOWN_MEMBERS: Final = ("call_id", "correlation_id", "client_session_id", "login_url", "resume_token")

DATA_LENGTH_MAX: Final = 200
"""Characters of the data of an own event on its line."""


def describe_callback(callback: Callback) -> str:
    """A line that says what happened, and a line for each id."""
    lines = [f"{callback.timestamp:%H:%M:%S} {callback.name} {_describe_call(callback.data)}".rstrip()]
    lines += [f"         {name}: {value}" for name in SHOWN_MEMBERS if (value := callback.data.get(name))]
    if callback.data.get("login_url") and UPSTREAM_NAME_PATTERN.fullmatch(
        upstream := str(callback.data.get("upstream"))
    ):
        lines.append(f"         or run: {login_command(upstream)}")
    if callback.subscription_id:
        lines.append(f"         webhook_id: {callback.subscription_id}")
    return "\n".join(lines)


def format_callback(callback: Callback) -> str:
    """The callback's body as one line of JSON."""
    body = {
        "eventId": callback.event_id,
        "name": callback.name,
        "timestamp": format_json_time(callback.timestamp),
        "cursor": callback.cursor,
        "data": callback.data,
    }
    return escape_control_characters(json.dumps(body, ensure_ascii=False))


def describe_own_data(data: Mapping[str, Any]) -> str:
    """The data of an event that is about no call and no webhook, as one line of JSON; long data ends with `…`."""
    if not data:
        return ""
    text = json.dumps(data, ensure_ascii=False)
    return text if len(text) <= DATA_LENGTH_MAX else f"{text[: DATA_LENGTH_MAX - 1]}…"


def describe_webhook_event(data: Mapping[str, Any]) -> str:
    """The webhook that an event is about, and how it fares: `wh_… suspended: timeout`. Empty for other events."""
    if "webhook_id" not in data or "state" not in data:
        return ""
    percent, error, advice = (data.get(member) for member in ("percent", "last_error", "advice"))
    if not isinstance(advice, str | None):
        return ""  # a published event, whose data may have any types
    state = data["state"] if percent is None else f"{percent} % of the way to suspension at {data.get('suspends_at')}"
    return " ".join([f"{data['webhook_id']} {state}{f': {error}.' if error else ''}", *([advice] if advice else [])])


def _describe_call(data: Mapping[str, Any]) -> str:
    """The callback's call: `git/git_log completed (result)`, its webhook, or the data of another event."""
    if "call_id" not in data:
        return describe_webhook_event(data) or describe_own_data(data)
    outcome = f" ({data['outcome']})" if data.get("outcome") else ""
    return f"{data.get('upstream')}/{data.get('tool')} {data.get('status')}{outcome}"
