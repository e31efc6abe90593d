"""RocketMQ remoting: `protocol` is pure bytes, `transport` is asyncio connections."""
