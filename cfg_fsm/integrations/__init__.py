"""The engine inside other software. Each needs an optional extra or none."""
