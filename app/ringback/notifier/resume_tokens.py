"""Resume tokens of calls: maps a call and a log position to the claims that `signing.resume_token` encodes."""

from datetime import datetime

from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.cursor import LogPosition
from ringback.domain.principal import Principal
from ringback.signing.resume_token import ResumeClaims, ResumeTokenCodec


class CallResumeTokens:
    """Issues tokens that name one call and a position in its owner's event log."""

    def __init__(self, tokens: ResumeTokenCodec, *, result_retention_seconds: float) -> None:
        self._tokens = tokens
        self._result_retention_seconds = result_retention_seconds

    def issue_token(self, call: Call, *, position: LogPosition) -> str:
        return self._tokens.encode_token(
            ResumeClaims(
                call_id=call.id,
                principal=call.principal,
                token_version=call.token_version,
                cursor_seq=position.seq,
                cursor_mark=position.mark,
                expires_at=int(self._token_expiry(call).timestamp()),
            )
        )

    def read_token(self, token: str, *, principal: Principal, now: datetime) -> ResumeClaims:
        """Raises `InvalidResumeToken`, or `ExpiredResumeToken` for an authentic token of this principal."""
        return self._tokens.decode_token(token, principal=principal, now=now)

    def _token_expiry(self, call: Call) -> datetime:
        """A token expires with the call's result; before there is one, at the latest time at which a result could expire."""
        return call.expires_at or call.deadline_at + seconds(self._result_retention_seconds)
