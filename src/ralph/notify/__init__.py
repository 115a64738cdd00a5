"""Notifications: when to send one, what it says, and how it is sent."""
