"""The transition audit: what is recorded, where it goes, and how it is read back."""
