"""The rules R1 to R12, executable, and the independent account that they are checked against."""
