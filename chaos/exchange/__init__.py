"""Histories of others brought into a run directory, and runs written as others read them."""
