"""Exhaustive exploration: the real registry, driven through every order of events that a scheduler can deliver."""
