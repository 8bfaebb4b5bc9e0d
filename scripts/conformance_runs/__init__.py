"""Runs the official conformance suite against Ringback: `scripts/conformance`.

    __main__ ─┬─ suite          npm package and Node, pinned; runs a revision's scenarios and reads their checks
              ├─ verdict        which checks passed, failed, were skipped, and which may fail, each with its reason
              └─ processes      a Ringback with authentication off, before ─▶ fixture
                                                                                ├─ fixture_tools   as the suite names them
                                                                                └─ fixture_tasks   tasks, in memory

The suite expects certain tools, prompts and resources, which the fixture has. A check that fails through Ringback and passes
directly (`--direct`) is Ringback's fault.
"""
