"""Arguments, `_meta` and results of calls: readable, or sealed if the sealer `seals_content`.

Sealed arguments and `_meta` are one text, `~` and base64, in the place of the arguments: no JSON text begins with a tilde. A
sealed result has the id of its key beside it. Both forms are read, whatever the setting is, so it can be changed at any time.
"""

import logging
from typing import Any, Final

from ringback.domain.call import UNREADABLE_MEMBER
from ringback.domain.encryption import Sealer
from ringback.domain.errors import ContentUnreadable
from ringback.domain.ids import CallId
from ringback.signing import base64_text
from ringback.signing.sealing import UnsealError
from ringback.storage.rows.columns import json_to_column
from ringback.storage.rows.statements import Row

log = logging.getLogger(__name__)

_SEALED_MARK: Final = "~"
_SEPARATOR: Final = b"\x00"
"""Between the JSON texts of arguments and `_meta`, which contain no such byte."""


def seal_arguments(row: dict[str, Any], sealer: Sealer) -> dict[str, Any]:
    """The columns of a new call's arguments, from its encoded columns."""
    call_id, arguments, meta = row["id"], row["arguments"], row["meta"]
    if not sealer.seals_content:
        return {"id": call_id, "arguments": arguments, "meta": meta, "key_id": None}
    plaintext = _SEPARATOR.join([arguments.encode(), meta.encode()])
    sealed = sealer.seal(plaintext, associated_data=_arguments_place(call_id))
    text = _SEALED_MARK + base64_text.encode_base64(sealed)
    return {"id": call_id, "arguments": text, "meta": "{}", "key_id": sealer.current_key_id}


def open_arguments(row: Row, sealer: Sealer) -> tuple[str | bytes | None, str | bytes]:
    """The JSON texts of arguments and `_meta`. If their key is missing, both are empty but for `UNREADABLE_MEMBER`.

    Without arguments, if the statement has left them out.
    """
    arguments: str | None = row["arguments"]
    if arguments is None:
        return None, "{}"
    if not arguments.startswith(_SEALED_MARK):
        return arguments, row["meta"]
    try:
        plaintext = sealer.unseal(
            base64_text.decode_base64(arguments.removeprefix(_SEALED_MARK)),
            associated_data=_arguments_place(row["id"]),
        )
    except (UnsealError, ValueError):
        facts = {name: row[name] for name in ("principal", "client_session_id", "correlation_id", "upstream")}
        log.warning("call.unreadable", extra={"call_id": row["id"], **facts})
        return "{}", json_to_column({UNREADABLE_MEMBER: True})
    opened, _, meta = plaintext.partition(_SEPARATOR)
    return opened, meta


def seal_result(call_id: CallId, body: bytes, sealer: Sealer) -> dict[str, Any]:
    """The columns of a result."""
    if not sealer.seals_content:
        return {"call_id": call_id, "body": body, "key_id": None}
    sealed = sealer.seal(body, associated_data=_result_place(call_id))
    return {"call_id": call_id, "body": sealed, "key_id": sealer.current_key_id}


def open_result(call_id: CallId, row: Row, sealer: Sealer) -> bytes:
    if row["key_id"] is None:
        return row["body"]
    try:
        return sealer.unseal(row["body"], associated_data=_result_place(call_id))
    except UnsealError:
        raise ContentUnreadable(
            f"The result was sealed with the key '{row['key_id']}', which this service does not have, or is damaged. Its "
            "operator can restore the key from a backup."
        ) from None


def _arguments_place(call_id: str) -> str:
    return f"inputs/{call_id}/arguments"


def _result_place(call_id: str) -> str:
    return f"results/{call_id}/body"
