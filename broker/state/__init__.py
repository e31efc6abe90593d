"""The broker's state machine: topics, groups, offsets, locks, and their snapshots."""
