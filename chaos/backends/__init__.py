"""Where a cluster runs: one `Cluster` Protocol, one module per kind of place."""
