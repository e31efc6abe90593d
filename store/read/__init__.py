"""The read path: messages by queue offset, time, place, id and key."""
