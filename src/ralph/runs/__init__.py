"""A run from its plan to its end: created, locked, driven, resumed, replayed."""
