"""Another process of the same agent: reads the result with one callback and its own API key.

python agent_resume.py --url http://127.0.0.1:8090 < callback.json

It first tries without its key, to show that a resume token does not replace the key. Prints one JSON object.
"""

import argparse
import asyncio
import json
import os
import sys

from ringback.client import RingbackClient, Unauthenticated


async def refused_without_key(url: str, token: str) -> bool:
    async with RingbackClient(url) as without_key:
        try:
            await without_key.resume(token)
        except Unauthenticated:
            return True
        return False


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    options = parser.parse_args()
    callback = json.load(sys.stdin)

    refused = await refused_without_key(options.url, callback["resume_token"])
    async with RingbackClient(options.url, api_key=os.environ["RINGBACK_API_KEY"]) as ringback:
        resumed = await ringback.resume(callback["resume_token"])
    print(
        json.dumps(
            {
                "refused_without_key": refused,
                "call_id": resumed.call.id,
                "correlation_id": resumed.call.correlation_id,
                "client_session_id": resumed.call.client_session_id,
                "status": resumed.call.status,
                "result": resumed.result,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
