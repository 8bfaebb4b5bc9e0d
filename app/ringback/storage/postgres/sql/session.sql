-- name: read_version
SELECT current_setting('server_version_num')::bigint AS version;
