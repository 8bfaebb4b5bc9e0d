"""Validates values against untrusted JSON Schemas, in bounded time.

    schema       a compiled schema: the entry point, and the cache of those that were used last
    dialects     the drafts 4, 6, 7, 2019-09 and 2020-12: which keyword has which meaning and which form
    document     reads a schema once: the form of its keywords, its ids and anchors, and what a reference refers to
    evaluation   one validation: its steps, its errors, its place in the value
    branches     why a value is valid under no branch of `anyOf` or `oneOf`
    assertions   the keywords that compare a value
    applicators  the keywords that apply other schemas
    patterns     regular expressions, with RE2
    values       types, equality and excerpts of JSON values
    steps        the limit on the work

A schema comes from an upstream or a client, and so does the value. Every unit of work is a step: a keyword, a comparison of
two scalars, a name that is looked up, a property that is visited, 1,000 characters that are compared. A keyword counts its
steps before it does the work, and the validation ends at the limit. An error message has a bounded excerpt of the value,
never its text. `anyOf`, `oneOf`, `not`, `if` and `contains` end a branch at its first error and build no message;
only for an error that a caller sees, the branches are examined once more, with steps of their own limit.

The keywords are ours because no library bounds them. jsonschema writes the whole value into each message, also below `anyOf`
(250 branches and 3 MB took 23 s), and reports each missing name of `required` (9 KB took 9 s); its resolver reads the whole
schema again for each reference to an `$id`. jsonschema-rs is faster by a constant factor but has no limit on the steps: a
schema of 64 references, each of which doubles the work, keeps it busy for ever, and nothing can stop it.

What differs from a complete validator, always so that less is rejected:

    format, unevaluated*   are not checked, and neither is a pattern that RE2 cannot compile. Below `not`, `oneOf`, `if` and
                           `contains`, no verdict depends on them
    nullable               is that of OpenAPI 3.0: where it is true, no keyword of the same schema rejects null
    $ref                   to another document, also to a metaschema, makes the schema unusable
    $schema                of an embedded schema has no effect: the dialect is that of the root

Of the 4,296 cases of the official test suite for the drafts 4 to 2020-12, without `format` and remote documents, 39 differ
because of these, and no valid value is rejected.
"""
