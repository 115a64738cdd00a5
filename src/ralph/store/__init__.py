"""The only writer of durable state: the journal, the commands for live runs, locks, files of a run."""
