"""What becomes of consumer offsets: replicated, removed, moved."""
