-- Names of things at /mcp that cannot be read back from themselves.

-- name: all
SELECT * FROM joined_names ORDER BY kind, name;

-- name: insert
INSERT INTO joined_names (kind, name, upstream, original) VALUES (:kind, :name, :upstream, :original)
ON CONFLICT DO NOTHING;
