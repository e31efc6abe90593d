"""Connections over asyncio: reading frames in batches, writing once per loop turn."""
