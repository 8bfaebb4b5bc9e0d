"""Resume tokens for calls: what signing makes, filled with what a call knows."""

from datetime import datetime

from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.cursor import Place
from ringback.domain.principal import Principal
from ringback.signing.resume_token import ResumeClaims, ResumeTokens


class CallTokens:
    """Issues the token that names one call and a place in its owner's event log."""

    def __init__(self, tokens: ResumeTokens, *, result_retention_seconds: float) -> None:
        self._tokens = tokens
        self._result_retention_seconds = result_retention_seconds

    def issue(self, call: Call, *, after: Place) -> str:
        return self._tokens.issue(
            ResumeClaims(
                call_id=call.id,
                principal=call.principal,
                token_version=call.token_version,
                cursor_seq=after.seq,
                cursor_mark=after.mark,
                expires_at=int(self._expiry(call).timestamp()),
            )
        )

    def read(self, token: str, *, principal: Principal, now: datetime) -> ResumeClaims:
        """Raises signing's `BadToken`, or `ExpiredToken` for a genuine one of this principal."""
        return self._tokens.read(token, principal=principal, now=now)

    def _expiry(self, call: Call) -> datetime:
        """A token expires with its result; while there is none, at the latest moment at which there could still be one."""
        return call.expires_at or call.deadline_at + seconds(self._result_retention_seconds)
