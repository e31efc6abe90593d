"""Send messages and show where each one was stored.

Run: python examples/produce.py 127.0.0.1:9876 orders 10
"""

import asyncio
import sys

from ledgermq import ClientConfig, Message, Outcome, Producer, SendFailed


async def main(namesrv: str, topic: str, count: int) -> int:
    """Send ``count`` messages one after the other; returns how many are not acknowledged."""
    config = ClientConfig(namesrv_addrs=tuple(namesrv.split(";")), group="example-producers")
    missing = 0
    async with Producer(config) as producer:
        for number in range(count):
            message = Message(topic, f"order {number}".encode(), tags="example", keys=str(number))
            try:
                result = await producer.send(message)
            except SendFailed as error:
                # UNKNOWN: it may be stored all the same. Sending it again may store it twice.
                maybe = error.outcome is Outcome.UNKNOWN
                sys.stdout.write(f"{number}: {'maybe' if maybe else 'not'} stored: {error}\n")
                missing += 1
                continue
            queue = result.queue
            sys.stdout.write(
                f"{number}: {queue.broker_name}/{queue.queue_id} offset {result.queue_offset}"
                f" after {len(result.attempts)} attempt(s)\n"
            )
    return missing


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} NAMESRV[;NAMESRV] TOPIC COUNT")
    sys.exit(min(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))), 1))
