"""Files that somebody else has written, or will read: rubbish is one clear error, with its line."""
