"""A callback receiver: verifies every callback and appends the valid ones to a file, one JSON object a line.

pip install ringback uvicorn
python receiver.py --port 9000 --secret-file secret.txt --out callbacks.jsonl
"""

import argparse
import asyncio
import json
from pathlib import Path

import uvicorn

from ringback.receiver import Callback, ReceiverApp


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--secret-file", type=Path, required=True, help="holds the webhook's whsec_… secret")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    async def append_to_file(callback: Callback) -> None:
        with options.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"event_id": callback.event_id, "name": callback.name, **callback.data}) + "\n")

    secret = options.secret_file.read_text(encoding="ascii").strip()
    receiver = ReceiverApp([secret], on_callback=append_to_file)
    config = uvicorn.Config(receiver, host="127.0.0.1", port=options.port, log_level="warning", lifespan="off")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
