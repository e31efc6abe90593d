"""What a slave takes over from its master besides the log: topics, groups, offsets, delays."""
