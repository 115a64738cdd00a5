"""The checks of `ralph doctor`: whether a run can work here."""
