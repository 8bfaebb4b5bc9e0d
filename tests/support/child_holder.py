"""A process that holds one stubborn child with a grandchild, says their ids, and waits to be killed: `child_holder FOLDER`."""

import asyncio
import json
import sys
from pathlib import Path

from tests.support.upstreams import drive, opened, raw_config


async def main(folder: Path) -> None:
    config = raw_config(RAW_STUBBORN="1", RAW_GRANDCHILD="1")
    async with opened(config, children_folder=folder) as upstreams:
        ending = await drive(upstreams, "whoami")
        assert ending.result is not None
        sys.stdout.write(json.loads(ending.result)["content"][0]["text"] + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
