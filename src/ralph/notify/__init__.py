"""Notifications: what is worth one, its words, and sending it."""
