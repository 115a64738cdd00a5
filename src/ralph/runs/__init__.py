"""A run from its plan to its last row: made, locked, driven, resumed, replayed."""
