"""Console, JSON lines, tables, reports, dashboard: they read events and the store, never the loop."""
