"""Prints the OpenAPI document, with the same bytes for the same code: `python -m ringback.api.openapi_export`."""

import json
import sys

from ringback.api.app import create_documented_app


def render_document() -> str:
    return json.dumps(create_documented_app().openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_document())
