"""Reads files written by others. Any bad content is one clear error with its line."""
