"""Callbacks in FastAPI, with an inbox on disk: a callback that was acknowledged is handled, even if the process is killed.

pip install ringback fastapi uvicorn
RINGBACK_WEBHOOK_SECRET=whsec_… uvicorn fastapi_receiver:app --port 9000
"""

import os

from fastapi import FastAPI

from ringback.receiver import Callback, OutcomeError, ReceiverApp, ResultNotIncluded, SQLiteInbox

app = FastAPI()


async def handle(callback: Callback) -> None:
    """Called for one callback of a session at a time. If it raises, it is called again later."""
    if callback.name != "call.finished":
        print(callback.name, callback.call_id, flush=True)
        return
    try:
        print(callback.correlation_id, "returned", callback.value_or_raise(), flush=True)
    except ResultNotIncluded:
        print(callback.correlation_id, "has a result: POST", callback.resume_url, flush=True)
    except OutcomeError as failure:  # or one of its kinds, such as OutcomeUnknown
        print(callback.correlation_id, "failed:", failure, flush=True)


receiver = ReceiverApp(os.environ["RINGBACK_WEBHOOK_SECRET"], on_callback=handle, inbox=SQLiteInbox("inbox.db"))
receiver.add_to(app, "/callbacks")
