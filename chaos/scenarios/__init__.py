"""Scenarios as files: read, checked against what the nemesis can do, and made into a timeline."""
