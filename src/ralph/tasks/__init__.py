"""Tasks as people write and edit them."""
