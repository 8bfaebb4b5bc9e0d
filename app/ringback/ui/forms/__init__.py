"""The form that starts a call of a tool.

    inputSchema ──schema_forms──▶ fields ──template──▶ the browser ──form_values──▶ arguments, or what is wrong with each field

What has no field of its own is typed as JSON. Pure functions: nothing here knows Jinja or HTTP.

    schema_forms     the fields, from the tool's inputSchema
    schema_reading   types, choices, limits and references of a schema that an upstream wrote
    form_fields      the fields as values
    form_values      the arguments, from what was typed into the fields
    form_keys        idempotency keys of forms, so that a form that is sent twice starts one call
"""
