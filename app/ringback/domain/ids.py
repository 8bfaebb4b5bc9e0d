"""Identifiers that say what they name: a prefix and a ULID, `call_01JD…`.

The ULID's 48 time bits keep ids in the order of their making, roughly; its 80 random bits are random for each id and never
counted upwards, because a call id is also a task id and must not be guessable (SEP-2663, security considerations). They are
drawn for several ids at once: a delivery makes three ids, and each request to the kernel takes longer than all else of an id.
"""

import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, NewType
from weakref import WeakSet

from ringback.domain.clock import Clock, epoch_milliseconds

CallId = NewType("CallId", str)
WebhookId = NewType("WebhookId", str)
EventId = NewType("EventId", str)
DeliveryId = NewType("DeliveryId", str)
AttemptId = NewType("AttemptId", str)
KeyId = NewType("KeyId", str)
LoginId = NewType("LoginId", str)
ErasureId = NewType("ErasureId", str)
SignInId = NewType("SignInId", str)
PortalLinkId = NewType("PortalLinkId", str)

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CROCKFORD_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_DIGIT_BY_BYTE = bytes(ord(_CROCKFORD[byte % 32]) for byte in range(256))
_RANDOM_BYTES = 16
"""One for each random digit, of which five bits are used: so all are translated at once."""
_IDS_DRAWN_AT_ONCE: Final = 64
_ULID_LENGTH = 26
_ULID_TIME_DIGITS: Final = 10
_SUBSCRIPTION_ID: Final = re.compile(r"sub_[0-9a-f]{32}")
"""The id of a webhook that an MCP client subscribed: a hash (`protocol.mcp_events.subscription_key`). Sorts before `wh_…`."""


class IdGenerator:
    """Makes ids. Randomness is handed in, so a test can draw the ids it wants to see."""

    def __init__(self, clock: Clock, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._last_instant: datetime | None = None
        self._last_time_digits = ""
        self._drawn_digits = ""
        """For the next ids."""
        self._digits_used = 0
        _GENERATORS.add(self)

    def new_call_id(self) -> CallId:
        return CallId(self._new_id("call"))

    def new_webhook_id(self) -> WebhookId:
        return WebhookId(self._new_id("wh"))

    def new_event_id(self) -> EventId:
        return EventId(self._new_id("evt"))

    def new_delivery_id(self) -> DeliveryId:
        return DeliveryId(self._new_id("dlv"))

    def new_attempt_id(self) -> AttemptId:
        return AttemptId(self._new_id("att"))

    def new_key_id(self) -> KeyId:
        return KeyId(self._new_id("key"))

    def new_login_id(self) -> LoginId:
        return LoginId(self._new_id("login"))

    def new_erasure_id(self) -> ErasureId:
        return ErasureId(self._new_id("era"))

    def new_sign_in_id(self) -> SignInId:
        return SignInId(self._new_id("signin"))

    def new_portal_link_id(self) -> PortalLinkId:
        return PortalLinkId(self._new_id("link"))

    def new_lease_token(self) -> str:
        """A fencing token: a write succeeds only while the row has it."""
        return self._new_id("lease")

    def random_bytes(self, size: int) -> bytes:
        """Bytes for a secret."""
        return self._random_bytes(size)

    def _new_id(self, prefix: str) -> str:
        instant = self._clock.now()
        if instant is not self._last_instant:  # a busy process makes several ids in one millisecond
            self._last_instant, self._last_time_digits = instant, _time_digits(epoch_milliseconds(instant))
        start = self._digits_used
        if start >= len(self._drawn_digits):
            self._drawn_digits = _random_digits(self._random_bytes(_RANDOM_BYTES * _IDS_DRAWN_AT_ONCE))
            start = 0
        end = self._digits_used = start + _RANDOM_BYTES
        return f"{prefix}_{self._last_time_digits}{self._drawn_digits[start:end]}"

    def forget_drawn_digits(self) -> None:
        """The next id draws new ones."""
        self._drawn_digits = ""


_GENERATORS: Final[WeakSet[IdGenerator]] = WeakSet()


def _forget_drawn_digits() -> None:
    for generator in _GENERATORS:
        generator.forget_drawn_digits()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_drawn_digits)  # otherwise the two processes would make equal ids


def ulid(milliseconds: int, randomness: bytes) -> str:
    """Crockford base32, 26 digits: 48 bits of time in ten of them, and the lowest five bits of 16 bytes of randomness."""
    return _time_digits(milliseconds) + _random_digits(randomness)


def _time_digits(milliseconds: int) -> str:
    return "".join([_CROCKFORD_PAIRS[milliseconds >> shift & 1023] for shift in (40, 30, 20, 10, 0)])


def _random_digits(randomness: bytes) -> str:
    return randomness.translate(_DIGIT_BY_BYTE).decode("ascii")


def first_id_at(prefix: str, instant: datetime) -> str:
    """A text that sorts before the ids that are made at this time or later, and after those that are made before.

    Before 1970 it is that of 1970: no id is older, and digits of a negative time would sort after all ids.
    """
    return f"{prefix}_{ulid(max(0, epoch_milliseconds(instant)), b'')}"


def id_milliseconds(well_formed_id: str) -> int:
    """The time at which an id of ours was made, in milliseconds since 1970."""
    milliseconds = 0
    for digit in well_formed_id.rpartition("_")[2][:_ULID_TIME_DIGITS]:
        milliseconds = milliseconds * len(_CROCKFORD) + _CROCKFORD.index(digit)
    return milliseconds


def is_well_formed_id(prefix: str, text: str) -> bool:
    """Whether `text` could be an id of ours with this prefix; what could not be is never looked up."""
    head, _, tail = text.partition("_")
    return head == prefix and len(tail) == _ULID_LENGTH and set(tail) <= set(_CROCKFORD)


def is_subscription_id(text: str) -> bool:
    """Whether `text` could be the id of an event subscription."""
    return _SUBSCRIPTION_ID.fullmatch(text) is not None


def is_webhook_id(text: str) -> bool:
    """Whether `text` could be the id of a webhook, registered or subscribed."""
    return is_well_formed_id("wh", text) or is_subscription_id(text)
