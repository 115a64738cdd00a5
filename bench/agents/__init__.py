"""Scripted agents: what they do, what they say, and whether the work is truly done."""
