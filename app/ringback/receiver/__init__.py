"""The receiving end of a callback: verify it, handle it once, wait for the one you need.

`verify` and `parse` are all that a web framework of your own needs:

    verify(headers, body, secrets, now=now)     raises VerificationError unless the sender signed exactly this, just now
    parse(body)                                 Callback, or a control envelope: Verification, Gap, Terminated

`ReceiverApp` is the same as an ASGI application, for any server or mounted into any framework:

    POST ──▶ bounded body ──▶ verify ──▶ parse ──▶ seen before? ──▶ on_callback ──▶ 204
             413              400        400       204              raises: 500, and the sender tries again
                                                                    │
                                        receiver.wait_for(correlation_id=…)

Delivery is at least once. Duplicates are recognised by subscription and `webhook-id`, within what one process remembers; a
handler whose effects must not happen twice also keeps the `event_id` in its own database.

A callback is signed, which tells who sent it. It does not make what it carries, a tool's result for example, trustworthy.

Imports nothing of Ringback but `ringback.signing`, and no web framework.
"""

from ringback.receiver.app import ReceiverApp
from ringback.receiver.envelopes import Callback, Gap, MalformedBody, Terminated, Verification, parse
from ringback.signing.standard_webhooks import VerificationError, VerifiedMessage, verify

__all__ = [
    "Callback",
    "Gap",
    "MalformedBody",
    "ReceiverApp",
    "Terminated",
    "Verification",
    "VerificationError",
    "VerifiedMessage",
    "parse",
    "verify",
]
