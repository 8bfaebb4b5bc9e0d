"""The PostgreSQL store: one database for any number of nodes.

Conventions of sql/*.sql, beside those of `storage.rows.statements`:

    :name          one parameter; a cast (`:now::bigint`) where PostgreSQL cannot know the type
    :ids           a list of scalars is an array: `unnest(:ids::text[]) WITH ORDINALITY`, `= ANY (:ids::text[])`
    :rows, :keys   a list of rows is one JSON text: `json_array_elements(:rows::json)`
    {lock}         `FOR NO KEY UPDATE` in a unit of work that writes, nothing in one that reads
    {lock calls}   the same with `OF calls`, for a statement that joins; {lock calls skip locked}: without the rows that another
                   unit has locked

A statement with a `:name` that it does not use does not exist; values that it does not name are ignored.
"""
