"""The command guard: what destroys is stopped before it runs."""
