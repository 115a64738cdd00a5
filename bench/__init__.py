"""Benchmarks: results are ratios to a floor measured in the same run, never a time alone."""
