"""Console, JSON lines, tables, reports and dashboard. They read events and the store, never the loop."""
