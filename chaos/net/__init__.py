"""The network between brokers as the harness sees and breaks it: frames, links, the proxy."""
