"""A log replicated by Raft, in DLedger's file format: the core is pure, the node is its shell."""
