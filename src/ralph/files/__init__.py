"""Files that somebody else has written: rubbish is one clear error, with its line."""
