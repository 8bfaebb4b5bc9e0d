-- oldest code: 20
-- With credentials for each principal, each has an account at the upstream, and accounts may have equal task ids.
CREATE INDEX calls_of_owned_task ON calls (upstream, json_extract(handle, '$[1].task_id'), principal) WHERE handle IS NOT NULL;
DROP INDEX calls_of_task;
