"""The audit as one self-contained page."""
