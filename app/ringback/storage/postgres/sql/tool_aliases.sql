-- Names at /mcp from which the upstream and the original name cannot be derived.

-- name: all
SELECT {tool_alias in joined_names} FROM joined_names ORDER BY kind, name;

-- name: insert
INSERT INTO joined_names {new tool_alias}
ON CONFLICT DO NOTHING;
