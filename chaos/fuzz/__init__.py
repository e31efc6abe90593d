"""Hostile frames, by the million, against a real group and real name servers."""
