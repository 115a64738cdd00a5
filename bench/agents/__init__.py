"""Scripted agents: their actions, their output, and whether the work is truly done."""
