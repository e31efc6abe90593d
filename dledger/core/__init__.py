"""Raft without I/O: ticks and messages in, one `Ready` out. Read `ready`, then `raft`."""
