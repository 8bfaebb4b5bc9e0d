"""An agent that starts work and may be killed: registers a webhook, starts the given calls, and waits for ever.

python agent_start.py --url http://127.0.0.1:8090 --callback http://127.0.0.1:9000/ --secret-file secret.txt \
    --session inference-1 '{"upstream": "git", "tool": "git_log", "arguments": {…}, "correlation_id": "c1"}' …

RINGBACK_API_KEY is its key. It prints each response of Ringback as a line of JSON at once.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path

from ringback.client import RingbackClient


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--callback", required=True)
    parser.add_argument("--secret-file", type=Path, required=True)
    parser.add_argument("--session", required=True, help="the client_session_id of all its calls")
    parser.add_argument("calls", nargs="+", type=json.loads)
    options = parser.parse_args()

    async with RingbackClient(options.url, api_key=os.environ["RINGBACK_API_KEY"]) as ringback:
        webhook = await ringback.register_webhook(
            options.callback,
            client_session_id=options.session,
            secret=options.secret_file.read_text(encoding="ascii").strip(),
        )
        print(json.dumps({"webhook": webhook.id, "hears": webhook.hears}), flush=True)
        for call in options.calls:
            started = await ringback.start_call(
                call["upstream"],
                call["tool"],
                call["arguments"],
                client_session_id=options.session,
                correlation_id=call["correlation_id"],
            )
            print(json.dumps({"call_id": started.call.id, "correlation_id": call["correlation_id"]}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
