"""The broker process: request processors over the replicated store, and what a cluster sees of it."""
