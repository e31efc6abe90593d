package ledgermq;

import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Closed-loop load with a window of outstanding sends; the same program drives every broker compared.
 *
 * Usage: Load NAMESRV TOPIC WINDOW BODY_BYTES WARMUP_S SECONDS. Window 1 uses the synchronous call.
 * Prints "measuring" when the warm-up is over and "measured" when the time is, for who watches processes, then one
 * JSON line: acknowledged sends per second, errors, p50 and p99 in milliseconds.
 */
public final class Load {
    private static final int LATENCIES_MAX = 4_000_000;

    private Load() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load_producer");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        int window = Integer.parseInt(args[2]);
        byte[] body = new byte[Integer.parseInt(args[3])];
        Arrays.fill(body, (byte) 'x');
        long warmup = (long) (Double.parseDouble(args[4]) * 1e9);
        long length = (long) (Double.parseDouble(args[5]) * 1e9);
        createTopic(producer, args[1], body);

        long[] latencies = new long[LATENCIES_MAX];
        AtomicInteger recorded = new AtomicInteger();
        AtomicLong errors = new AtomicLong();
        long from = System.nanoTime() + warmup;
        long until = from + length;
        Semaphore permits = new Semaphore(window);
        boolean measuring = false;
        while (true) {
            long now = System.nanoTime();
            if (now >= until) {
                break;
            }
            if (!measuring && now >= from) {
                measuring = true;
                System.out.println("measuring");
            }
            Message message = new Message(args[1], body);
            if (window == 1) {
                try {
                    producer.send(message);
                    record(latencies, recorded, now, from, until);
                } catch (Exception e) {
                    errors.incrementAndGet();
                }
                continue;
            }
            permits.acquire();
            long begin = System.nanoTime();
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        permits.release();
                        record(latencies, recorded, begin, from, until);
                    }

                    @Override
                    public void onException(Throwable e) {
                        permits.release();
                        errors.incrementAndGet();
                    }
                });
            } catch (Exception e) {
                permits.release();
                errors.incrementAndGet();
            }
        }
        System.out.println("measured");
        permits.acquire(window);
        int n = Math.min(recorded.get(), LATENCIES_MAX);
        Arrays.sort(latencies, 0, n);
        System.out.println(String.format(Locale.ROOT,
            "{\"window\":%d,\"rate\":%.1f,\"errors\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f}",
            window, n / (length / 1e9), errors.get(),
            n == 0 ? -1.0 : latencies[n / 2] / 1e6, n == 0 ? -1.0 : latencies[(int) (n * 0.99)] / 1e6));
        producer.shutdown();
        System.exit(0);
    }

    private static void createTopic(DefaultMQProducer producer, String topic, byte[] body) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.send(new Message(topic, body), 5_000);
                return;
            } catch (Exception e) {
                if (attempt == 20) {
                    throw e;
                }
                Thread.sleep(500);
            }
        }
    }

    private static void record(long[] latencies, AtomicInteger recorded, long begin, long from, long until) {
        long now = System.nanoTime();
        if (now >= from && now < until) {
            int slot = recorded.getAndIncrement();
            if (slot < LATENCIES_MAX) {
                latencies[slot] = now - begin;
            }
        }
    }
}
