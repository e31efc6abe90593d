"""Request processors: hot ones are plain functions of (connection, frame), the others answer commands."""
