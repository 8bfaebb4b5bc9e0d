"""A process that starts a child which ignores SIGTERM, with a grandchild, prints their PIDs, and waits to be killed.

Usage: `child_parent_process.py FOLDER`
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.support.upstreams import make_raw_config, open_upstreams, run_upstream_call


async def main(folder: Path) -> None:
    config = make_raw_config(RAW_STUBBORN="1", RAW_GRANDCHILD="1")
    async with open_upstreams(config, children_folder=folder) as upstreams:
        ending = await run_upstream_call(upstreams, "whoami")
        assert ending.result is not None
        sys.stdout.write(json.loads(ending.result)["content"][0]["text"] + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
