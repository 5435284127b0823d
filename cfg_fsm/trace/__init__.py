"""Traces: reading recorded events, running them, summing up."""
