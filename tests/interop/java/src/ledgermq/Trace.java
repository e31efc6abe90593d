package ledgermq;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and consumes with message trace, and reads the trace topic.
 *
 * Usage: Trace NAMESRV TOPIC COUNT. Lines: "ID body msgId" of each send, "TRACE KIND fields..." of each trace.
 */
public final class Trace {
    private static final AtomicInteger SEEN = new AtomicInteger();

    private Trace() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("trace_producer", true, null), args[0]);
        producer.start();
        Talk.send("trace-first", () -> producer.send(Talk.message(args[1], "0", "trace-first")));
        DefaultMQPushConsumer traces = Talk.consumer(args[0], "trace_readers", "t");
        traces.subscribe("RMQ_SYS_TRACE_TOPIC", "*");
        traces.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                for (String piece : Talk.body(m).split("\u0002")) {
                    Talk.say("TRACE " + piece.replace(' ', '_').replace('\u0001', ' '));
                    SEEN.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        traces.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("trace_group", true, null);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got("c", m, "-");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                // Java's client gives up a trace that it cannot send, so those of the first half come first.
                int wanted = 3 * (1 + count / 2);
                Talk.until(() -> SEEN.get() >= wanted, 20_000);
                Talk.half();
            }
            String body = "trace-" + i;
            Message message = Talk.message(args[1], "key-" + i, body);
            SendResult result = Talk.send(body, () -> producer.send(message));
            Talk.say("ID " + body + " " + result.getMsgId());
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
        traces.shutdown();
    }
}
