"""REST: the services as HTTP, JSON in snake_case, every error a problem document (RFC 9457).

    request ──▶ LastResort ▸ Door ▸ (CORS) ▸ BodyLimit      middleware: plain ASGI, nothing of FastAPI
                    │        │                 └ counts the bytes as they come
                    │        └ Host and Origin
                    └ what nobody expected becomes a 500 without details
            ──▶ GuardedRoute                                who asks (401), then what it says (415, 413, 400)
            ──▶ one function per operation                  schema in (422) ▸ one service call ▸ view out

One file per noun holds the operations; `schemas/` has the bodies that come in and the views that go out, also one file per
noun. Nothing here decides anything: a rule that REST needs and another door would need too belongs to `services`.

`app.py` puts it together, `problems.py` knows which error is which status, `callbacks.py` describes what receivers are sent,
`openapi_document.py` prints all of it, and `served_document.py` answers with it.
"""
