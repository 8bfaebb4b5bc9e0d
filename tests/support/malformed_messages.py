"""Malformed responses, with `@ID@` in place of the request's id; for stdio and HTTP."""

from typing import Final

VALID_RESPONSE: Final = b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"fine"}]}}\n'
UNREADABLE_MESSAGES: Final[dict[str, bytes]] = {
    "bad JSON": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[oops]}}\n',
    "bad JSON whose id comes last": b'{"result":{"content":[oops]},"jsonrpc":"2.0","id":@ID@}\n',
    "too deeply nested": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"x":' + b"[" * 250 + b"]" * 250 + b"}}\n",
    "too deeply nested, and the id comes last": b'{"result":{"x":' + b"[" * 250 + b"]" * 250 + b'},"id":@ID@}\n',
    "nested beyond every reader": b'{"jsonrpc":"2.0","id":@ID@,"result":' + b"[" * 100_000 + b"\n",
    "a result that is no object": b'{"jsonrpc":"2.0","id":@ID@,"result":[1,2]}\n',
    "a result that is null": b'{"jsonrpc":"2.0","id":@ID@,"result":null}\n',
    "neither result nor error": b'{"jsonrpc":"2.0","id":@ID@}\n',
    "an error of the wrong shape": b'{"jsonrpc":"2.0","id":@ID@,"error":"no"}\n',
    "an error without words": b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":1}}\n',
    "no version": b'{"id":@ID@,"result":{"content":[]}}\n',
    "NaN": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"x":NaN}}\n',
    "a number beyond every double": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"x":1e999}}\n',
    "an integer of 301 digits": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"x":%d}}\n' % 10**300,
    "a key twice, the last one wrong": b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]},"result":1}\n',
}
MALFORMED_EVENTS: Final[dict[str, bytes]] = {
    "a heartbeat in words": b"ping\n",
    "a heartbeat in JSON": b"{}\n",
    "a number": b"1\n",
    "progress that is not a number": (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":NaN}}\n'
    ),
    "a log message with infinity": (
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":Infinity}}\n'
    ),
    "a notification without a version": b'{"method":"notifications/x"}\n',
}
"""None of them can be a response."""

READABLE_MESSAGES: Final[dict[str, tuple[bytes, str, int]]] = {
    "a lone high surrogate": (rb"cut \ud83d", "cut �", 1),
    "a lone low surrogate": (rb"cut \ude00 here", "cut � here", 1),
    "the wrong way round": (rb"\ude00\ud83d", "��", 2),
    "one beside a whole pair": (rb"\ud83d\ud83d\ude00", "�\U0001f600", 1),
    "a surrogate behind a backslash": (rb"\\\ud83d", "\\�", 1),
    "text that only looks like one, beside one": (rb"\\ud83d \ud83d", "\\ud83d �", 1),
    "bytes that are no UTF-8": (b"a\xffb", "a�b", 1),
}
