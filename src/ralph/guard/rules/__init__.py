"""The rules, by category. Each is a name, a reason that an agent can act on, and what it matches."""
