"""Everything that executes a submission."""
