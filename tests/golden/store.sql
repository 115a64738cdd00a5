-- user_version 1
CREATE TABLE commands (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    applied REAL,
    delivered INTEGER
);
CREATE INDEX commands_open ON commands (run, id) WHERE applied IS NULL;
CREATE TABLE journal (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    started REAL NOT NULL,
    result_kind TEXT,
    result TEXT,
    state TEXT,
    ended REAL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    flow TEXT NOT NULL,
    parent TEXT,
    created REAL NOT NULL,
    pid INTEGER,
    pid_start TEXT
, task TEXT, role TEXT);
CREATE INDEX runs_task ON runs (project, task) WHERE task IS NOT NULL;
CREATE TABLE tasks (
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    spec_id TEXT NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    dependencies TEXT NOT NULL,
    assignee TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    metadata TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    completion_spec TEXT,
    protect TEXT,
    attempts INTEGER NOT NULL DEFAULT 1,
    progress TEXT,
    PRIMARY KEY (project, id)
);
CREATE INDEX tasks_open ON tasks (project, status, priority);
