"""The other members: connections, who may speak, what is sent and taken."""
