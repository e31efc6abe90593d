"""What a send may contain, how it is stored, and the topics that it has made."""
