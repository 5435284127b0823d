"""Benchmarks: ratios between peers, measured in one run. ``python -m tests.bench [--quick]``."""
