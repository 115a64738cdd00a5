"""What people and programs see of a run. Views read events and the store, never the loop."""
