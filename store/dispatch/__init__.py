"""From committed entries to consume queue units, keys and applied state."""
