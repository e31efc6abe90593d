"""The disk under a log: syncs in threads, what is durable, disks that are full or hang."""
