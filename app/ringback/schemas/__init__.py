"""Bodies that come in and views that go out, one file per noun.

What comes in is a `Body` or a `Question` (of query parameters): unknown members are refused, so that a typing error is an
answer and not a filter that silently filters nothing; every string and number is bounded. What goes out is a `View`, with
every member always there, `null` where there is nothing, except for what is shown only once or only sometimes (`Sometimes`).

The examples of `examples.py` are part of the schemas, and a test holds both together.
"""
