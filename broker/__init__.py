"""The broker process: request processors over the replicated store, seen by a cluster."""
