"""Runs Python functions that a model wrote, where they can neither harm nor deceive."""
