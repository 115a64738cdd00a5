"""Tasks as people write and change them."""
