"""The login whose tokens a connection sends, from its first request until another login takes its place.

    no tokens yet ──▶ a login ──refreshes──▶ the same login ──▶ another login, signed out, owner erased: ended

A session and its lists belong to the account of the login that opened it. So a source of tokens keeps to one login: once it
has ended, it gives out no token of another one, and its connection is replaced.
"""

from typing import Protocol

from ringback.domain.ids import LoginId


class LoginChangeHandler(Protocol):
    def __call__(self, *, has_ended: bool) -> None: ...


def _ignore_change(*, has_ended: bool) -> None:
    """No connection follows the login yet."""


class FollowedLogin:
    def __init__(self) -> None:
        self.login_id: LoginId | None = None
        """None without tokens."""
        self.has_ended = False
        self.on_change: LoginChangeHandler = _ignore_change
        """Called when a login has begun, or the followed one has ended."""
        self._is_known = False

    def follow(self, stored: LoginId | None) -> bool:
        """Note the login of the stored tokens, None without tokens. Return whether their source may send them."""
        if self.has_ended:
            return False
        before, was_known, self._is_known = self.login_id, self._is_known, True
        if before is not None and stored != before:
            self.end()
            return False
        self.login_id = stored
        if was_known and stored != before:
            self.on_change(has_ended=False)
        return True

    def follow_unreadable(self) -> None:
        """Tokens are stored that this node cannot read. Whose login they are of is not known, so the followed one has ended."""
        if self._is_known:
            self.end()

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.on_change(has_ended=True)
