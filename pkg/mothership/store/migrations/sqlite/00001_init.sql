-- +goose Up
CREATE TABLE clusters (
    runtime_id        text    NOT NULL PRIMARY KEY,
    runtime_name      text    NOT NULL DEFAULT '',
    global_account_id text    NOT NULL DEFAULT '',
    plan_name         text    NOT NULL DEFAULT '',
    kyma_version      text    NOT NULL DEFAULT '',
    cluster_version   bigint  NOT NULL DEFAULT 0,
    config_version    bigint  NOT NULL DEFAULT 0,
    ready_version     bigint  NOT NULL DEFAULT 0,
    status            text    NOT NULL CHECK (status IN ('reconcile_pending', 'reconciling', 'ready', 'reconcile_error_retryable', 'error',
        'reconcile_disabled', 'delete_pending', 'deleting', 'deleted', 'delete_error_retryable', 'delete_error')),
    deletion          boolean NOT NULL DEFAULT false,
    disabled          boolean NOT NULL DEFAULT false,
    disabled_until    integer,
    open_run          text,
    failed_run        text    NOT NULL DEFAULT '',
    closing           boolean NOT NULL DEFAULT false,
    at_once           boolean NOT NULL DEFAULT false,
    in_flight         integer NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    fence             bigint  NOT NULL DEFAULT 0 CHECK (fence >= 0),
    retries           integer NOT NULL DEFAULT 0 CHECK (retries >= 0),
    rank              integer NOT NULL DEFAULT 0,
    input_at          integer,
    next_run_at       integer,
    created_at        integer NOT NULL,
    updated_at        integer NOT NULL,
    CHECK (open_run IS NULL OR next_run_at IS NULL),
    CHECK (open_run IS NOT NULL OR (next_run_at IS NULL) = (status IN ('error', 'delete_error', 'deleted')
        OR (status = 'reconcile_disabled' AND disabled_until IS NULL))),
    CHECK (open_run IS NOT NULL OR (NOT closing AND in_flight = 0)),
    CHECK (NOT (disabled AND deletion))
);
CREATE INDEX clusters_due ON clusters (rank, next_run_at) WHERE next_run_at IS NOT NULL;

CREATE TABLE cluster_versions (
    runtime_id  text   NOT NULL REFERENCES clusters (runtime_id),
    version     bigint NOT NULL,
    name        text   NOT NULL,
    description text   NOT NULL,
    metadata    text   NOT NULL,
    kubeconfig  blob NOT NULL,
    created_at  integer NOT NULL,
    PRIMARY KEY (runtime_id, version)
);

CREATE TABLE cluster_configs (
    runtime_id      text   NOT NULL REFERENCES clusters (runtime_id),
    version         bigint NOT NULL,
    cluster_version bigint NOT NULL,
    kyma_version    text   NOT NULL,
    profile         text   NOT NULL,
    administrators  text   NOT NULL,
    components      blob NOT NULL,
    created_at      integer NOT NULL,
    PRIMARY KEY (runtime_id, version)
);

CREATE TABLE cluster_statuses (
    id              integer PRIMARY KEY AUTOINCREMENT,
    runtime_id      text   NOT NULL REFERENCES clusters (runtime_id),
    cluster_version bigint NOT NULL,
    config_version  bigint NOT NULL,
    status          text   NOT NULL,
    created_at      integer NOT NULL
);
CREATE INDEX cluster_statuses_runtime ON cluster_statuses (runtime_id, id);

-- What was ever handed over and not deleted since. config_version is the last version that has the component.
CREATE TABLE cluster_components (
    runtime_id     text    NOT NULL REFERENCES clusters (runtime_id),
    component      text    NOT NULL,
    position       integer NOT NULL,
    namespace      text    NOT NULL,
    version        text    NOT NULL,
    git            boolean NOT NULL,
    config_version bigint  NOT NULL,
    PRIMARY KEY (runtime_id, component)
);

CREATE TABLE reconciliations (
    scheduling_id   text    NOT NULL PRIMARY KEY,
    runtime_id      text    NOT NULL REFERENCES clusters (runtime_id),
    cluster_version bigint  NOT NULL,
    config_version  bigint  NOT NULL,
    deletion        boolean NOT NULL,
    status          text    NOT NULL,
    superseded      boolean NOT NULL DEFAULT false,
    failed          boolean NOT NULL DEFAULT false,
    finished        boolean NOT NULL DEFAULT false,
    max_retries     integer NOT NULL,
    max_parallel    integer NOT NULL,
    reason          text    NOT NULL DEFAULT '',
    created_at      integer NOT NULL,
    updated_at      integer NOT NULL
);
CREATE UNIQUE INDEX reconciliations_open ON reconciliations (runtime_id) WHERE NOT finished;
CREATE INDEX reconciliations_newest ON reconciliations (created_at, scheduling_id);
CREATE INDEX reconciliations_runtime ON reconciliations (runtime_id, created_at);

CREATE TABLE operations (
    correlation_id  text    NOT NULL PRIMARY KEY,
    scheduling_id   text    NOT NULL REFERENCES reconciliations (scheduling_id) ON DELETE CASCADE,
    runtime_id      text    NOT NULL,
    component       text    NOT NULL,
    namespace       text    NOT NULL,
    version         text    NOT NULL,
    reconciler      text    NOT NULL,
    type            text    NOT NULL CHECK (type IN ('reconcile', 'delete')),
    state           text    NOT NULL CHECK (state IN ('new', 'in_progress', 'failed', 'done', 'error', 'client_error', 'orphan', 'cancelled')),
    priority        integer NOT NULL CHECK (priority > 0),
    rank            integer NOT NULL,
    config_version  bigint  NOT NULL,
    depends_on      text    NOT NULL DEFAULT '',
    attempt         integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    tries           integer NOT NULL DEFAULT 0,
    max_tries       integer NOT NULL,
    retries         integer NOT NULL DEFAULT 0,
    fence           bigint  NOT NULL DEFAULT 0,
    runnable        boolean NOT NULL DEFAULT false,
    not_before      integer,
    leased          boolean NOT NULL DEFAULT false,
    lease_until     integer,
    lease_ms        bigint  NOT NULL DEFAULT 0,
    queued_until    integer,
    deadline        integer,
    deadline_ms     bigint  NOT NULL,
    accepted        boolean NOT NULL DEFAULT false,
    called_back     boolean NOT NULL DEFAULT false,
    runner_id       text    NOT NULL DEFAULT '',
    retry_id        text    NOT NULL DEFAULT '',
    failed_retries  integer NOT NULL DEFAULT 0,
    failed_retry_id text    NOT NULL DEFAULT '',
    reason          text    NOT NULL DEFAULT '',
    report          text    NOT NULL DEFAULT '',
    picked_up       integer,
    processing_ms   bigint  NOT NULL DEFAULT 0,
    created_at      integer NOT NULL,
    updated_at      integer NOT NULL,
    UNIQUE (scheduling_id, component),
    CHECK (tries <= attempt),
    CHECK (leased = (lease_until IS NOT NULL)),
    CHECK (NOT leased OR (attempt > 0 AND state IN ('in_progress', 'failed', 'client_error'))),
    CHECK (leased OR state NOT IN ('in_progress', 'failed')),
    CHECK (NOT runnable OR (NOT leased AND not_before IS NOT NULL AND state IN ('new', 'orphan', 'client_error')))
);
CREATE INDEX operations_runnable ON operations (reconciler, rank, priority, not_before) WHERE runnable;
CREATE INDEX operations_leased ON operations (runtime_id) WHERE leased;

CREATE TABLE component_reconcilers (
    name         text   NOT NULL PRIMARY KEY,
    heartbeat_ms bigint NOT NULL DEFAULT 0,
    gate_until   integer,
    updated_at   integer NOT NULL
);

-- One row: since when callbacks could be accepted without a gap.
CREATE TABLE liveness (
    id       integer NOT NULL PRIMARY KEY CHECK (id = 1),
    up_since integer NOT NULL,
    seen_at  integer NOT NULL
);

CREATE TABLE replicas (
    name       text NOT NULL PRIMARY KEY,
    version    text NOT NULL,
    started_at integer NOT NULL,
    seen_at    integer NOT NULL
);

-- One row: a replica whose keyset can't decrypt it must not run.
CREATE TABLE canary (
    id    integer NOT NULL PRIMARY KEY CHECK (id = 1),
    value blob NOT NULL
);
