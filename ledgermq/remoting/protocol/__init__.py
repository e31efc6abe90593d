"""RocketMQ's remoting protocol, pure: frames, commands, headers, bodies, message records."""
