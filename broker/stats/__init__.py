"""What a broker knows of its traffic, for the tools that ask."""
