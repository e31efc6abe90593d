package ledgermq;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Legal but seldom uses of the client, one after the other; each prints "CASE name result". In the
 * middle it waits until the test has killed the leader.
 *
 * <p>Usage: Odd NAMESRV TOPIC; it and TOPIC_orderly have four queues.
 */
public final class Odd {
    private static final int MIB = 1024 * 1024;
    private static String namesrv;
    private static String topic;

    private Odd() { }

    /** What a case does; it returns what it saw. */
    interface Case {
        Object run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        topic = args[1];
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("odd_producer"), namesrv);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setMaxMessageSize(16 * MIB);
        producer.start();
        String[] kinds = {"ZLIB", "LZ4", "ZSTD"};
        for (String kind : kinds) {
            say("compressed-" + kind, () -> compressed(kind));
        }
        say("batch", () -> {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                batch.add(Talk.message(topic, "b" + i, "batch-" + i));
            }
            return producer.send(batch).getSendStatus() + " " + producer.send(batch).getMsgId().split(",").length;
        });
        say("oneway", () -> {
            producer.sendOneway(Talk.message(topic, "o", "oneway"));
            return found("o", "oneway");
        });
        for (int size : new int[] {4 * MIB - 1024, 4 * MIB, 4 * MIB + 1}) {
            say("body-" + size, () -> {
                producer.setCompressMsgBodyOverHowmuch(64 * MIB);
                byte[] body = new byte[size];
                new Random(7).nextBytes(body);
                SendResult sent = producer.send(new Message(topic, "T", "big" + size, body));
                return sent.getSendStatus() + " " + Arrays.equals(body, back(sent).getBody());
            });
        }
        for (int size : new int[] {32_000, 32_767, 40_000}) {
            say("property-" + size, () -> {
                Message message = Talk.message(topic, "p" + size, "property");
                message.putUserProperty("long", "x".repeat(size));
                SendResult sent = producer.send(message);
                return sent.getSendStatus() + " " + back(sent).getUserProperty("long").length();
            });
        }
        for (String level : new String[] {"19", "99", "-1", "x"}) {
            say("level-" + level, () -> {
                Message message = Talk.message(topic, "l", "level");
                MessageAccessor.putProperty(message, "DELAY", level);
                return producer.send(message).getSendStatus();
            });
        }
        for (String name : new String[] {"TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"}) {
            String later = name.equals("TIMER_DELIVER_MS") ? "" + (System.currentTimeMillis() + 600_000) : "60000";
            say("timer-" + name, () -> timed(producer, name, later, "0"));
        }
        String over = "" + (System.currentTimeMillis() - 1_000);
        say("timer-over", () -> timed(producer, "TIMER_DELIVER_MS", over, "0"));
        say("timer-with-level", () -> timed(producer, "TIMER_DELAY_MS", "60000", "1"));
        say("timer-x", () -> timed(producer, "TIMER_DELAY_MS", "x", "0"));
        Talk.half();
        Talk.send("switched", () -> producer.send(Talk.message(topic, "w", "switched")));
        say("signed", () -> {
            AclClientRPCHook hook = new AclClientRPCHook(new SessionCredentials("RocketMQ", "12345678"));
            DefaultMQProducer signing = new DefaultMQProducer("odd_signing", hook);
            Talk.ready(signing, namesrv).setInstanceName("signing");
            signing.start();
            SendResult sent = Talk.send("signed", () -> signing.send(Talk.message(topic, "s", "signed")));
            signing.shutdown();
            return sent.getSendStatus();
        });
        say("namespace", Odd::namespace);
        say("assign-and-seek", Odd::assigned);
        say("orderly-suspend", () -> suspended(producer));
        producer.shutdown();
        Talk.say("SENT");
        System.in.read();
        System.exit(0);
    }

    private static void say(String name, Case one) {
        String told;
        try {
            told = String.valueOf(one.run());
        } catch (MQBrokerException e) {
            told = "code " + e.getResponseCode() + " " + e.getErrorMessage();
        } catch (Throwable e) {
            told = e.getClass().getSimpleName() + " " + e.getMessage();
        }
        Talk.say("CASE " + name + " " + told.replace('\n', ' '));
    }

    private static Object timed(DefaultMQProducer producer, String name, String value, String level) throws Exception {
        Message message = Talk.message(topic, "t", "timed");
        MessageAccessor.putProperty(message, name, value);
        MessageAccessor.putProperty(message, "DELAY", level);
        return producer.send(message).getSendStatus();
    }

    private static DefaultLitePullConsumer reader() throws Exception {
        DefaultLitePullConsumer reader = new DefaultLitePullConsumer("odd_readers");
        reader.setNamesrvAddr(namesrv);
        reader.setInstanceName("reader" + System.nanoTime());
        reader.setAutoCommit(false);
        reader.start();
        return reader;
    }

    /** Return what was stored where a send says. */
    private static MessageExt back(SendResult sent) throws Exception {
        DefaultLitePullConsumer reader = reader();
        try {
            MessageQueue queue = sent.getMessageQueue();
            reader.assign(Arrays.asList(queue));
            reader.seek(queue, sent.getQueueOffset());
            for (int i = 0; i < 20; i++) {
                for (MessageExt m : reader.poll(1_000)) {
                    if (m.getQueueOffset() == sent.getQueueOffset()) {
                        return m;
                    }
                }
            }
            throw new IllegalStateException("not found");
        } finally {
            reader.shutdown();
        }
    }

    private static String found(String key, String body) throws Exception {
        DefaultLitePullConsumer reader = reader();
        try {
            reader.assign(reader.fetchMessageQueues(topic));
            for (MessageQueue queue : reader.fetchMessageQueues(topic)) {
                reader.seekToBegin(queue);
            }
            for (int i = 0; i < 20; i++) {
                for (MessageExt m : reader.poll(1_000)) {
                    if (key.equals(m.getKeys())) {
                        return "found " + Talk.body(m).equals(body);
                    }
                }
            }
            return "not found";
        } finally {
            reader.shutdown();
        }
    }

    private static String compressed(String kind) throws Exception {
        System.setProperty("rocketmq.message.compressType", kind);
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("odd_" + kind), namesrv);
        producer.setInstanceName(kind);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            byte[] body = "compressible ".repeat(2_000).getBytes(StandardCharsets.UTF_8);
            SendResult sent = producer.send(new Message(topic, "T", kind, body));
            MessageExt m = back(sent);
            return sent.getSendStatus() + " " + Arrays.equals(body, m.getBody()) + " " + (m.getStoreSize() < 3_000);
        } finally {
            producer.shutdown();
        }
    }

    private static String namespace() throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("odd_spaced"), namesrv);
        producer.setNamespace("space");
        producer.setInstanceName("space");
        producer.start();
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "odd_spaced_readers", "space-reader");
        consumer.setNamespace("space");
        consumer.subscribe("spaced_topic", "*");
        List<String> seen = new ArrayList<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                synchronized (seen) {
                    seen.add(m.getTopic() + " " + Talk.body(m));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            SendResult sent = Talk.send("spaced", () -> producer.send(Talk.message("spaced_topic", "n", "spaced")));
            consumer.start();
            await(() -> seen.size() > 0);
            return sent.getSendStatus() + " " + seen;
        } finally {
            producer.shutdown();
            consumer.shutdown();
        }
    }

    private static String assigned() throws Exception {
        DefaultLitePullConsumer reader = reader();
        try {
            Collection<MessageQueue> queues = reader.fetchMessageQueues(topic);
            MessageQueue one = queues.iterator().next();
            reader.assign(Arrays.asList(one));
            reader.seekToBegin(one);
            int first = all(reader);
            reader.seekToBegin(one);
            int again = all(reader);
            reader.seekToEnd(one);
            int none = all(reader);
            long at = reader.offsetForTimestamp(one, 0L);
            reader.seek(one, at);
            int byTime = all(reader);
            reader.commitSync();
            return queues.size() + " " + (first > 0) + " " + (first == again) + " " + none + " " + (byTime == first)
                + " " + (reader.committed(one) == first);
        } finally {
            reader.shutdown();
        }
    }

    private static int all(DefaultLitePullConsumer reader) {
        int count = 0;
        for (int empty = 0; empty < 3; ) {
            int got = reader.poll(1_000).size();
            count += got;
            empty = got == 0 ? empty + 1 : 0;
        }
        return count;
    }

    /** One member suspends each queue once; another joins and leaves meanwhile. */
    private static String suspended(DefaultMQProducer producer) throws Exception {
        String own = topic + "_orderly";
        for (int i = 0; i < 64; i++) {
            int number = i;
            Message message = Talk.message(own, "k" + i, "" + i);
            Talk.send("" + i, () -> producer.send(message, (queues, m, a) -> queues.get(number % queues.size()), null));
        }
        ConcurrentHashMap<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
        AtomicInteger wrong = new AtomicInteger();
        ConcurrentHashMap<Integer, Boolean> suspended = new ConcurrentHashMap<>();
        MessageListenerOrderly listener = (messages, context) -> {
            int queue = context.getMessageQueue().getQueueId();
            if (suspended.putIfAbsent(queue, true) == null) {
                context.setSuspendCurrentQueueTimeMillis(50);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            List<Integer> numbers = seen.computeIfAbsent(queue, any -> new ArrayList<>());
            synchronized (numbers) {
                for (MessageExt m : messages) {
                    int number = Integer.parseInt(Talk.body(m));
                    if (!numbers.contains(number)) {
                        if (!numbers.isEmpty() && numbers.get(numbers.size() - 1) > number) {
                            wrong.incrementAndGet();
                        }
                        numbers.add(number);
                    }
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        };
        DefaultMQPushConsumer first = orderly("first", own, listener);
        first.start();
        DefaultMQPushConsumer second = orderly("second", own, listener);
        second.start();
        Thread.sleep(3_000);
        second.shutdown();
        await(() -> seen.values().stream().mapToInt(List::size).sum() >= 64);
        first.shutdown();
        return seen.values().stream().mapToInt(List::size).sum() + " " + wrong.get() + " " + suspended.size();
    }

    private static DefaultMQPushConsumer orderly(String instance, String own, MessageListenerOrderly listener)
        throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "odd_orderly", instance);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(own, "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    private static void await(java.util.function.BooleanSupplier holds) throws Exception {
        long end = System.currentTimeMillis() + 60_000;
        while (!holds.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
    }
}
