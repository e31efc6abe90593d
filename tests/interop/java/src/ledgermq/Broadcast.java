package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Two members of a broadcasting group: each gets every message. Usage: Broadcast NAMESRV TOPIC COUNT. */
public final class Broadcast {
    private Broadcast() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("broadcast_producer"), args[0]);
        producer.start();
        Talk.send("broadcast-first", () -> producer.send(Talk.message(args[1], "0", "broadcast-first")));
        DefaultMQPushConsumer a = member(args[0], args[1], "a");
        DefaultMQPushConsumer b = member(args[0], args[1], "b");
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "broadcast-" + i;
            Talk.send(body, () -> producer.send(Talk.message(args[1], "k", body)));
        }
        Talk.untilTold();
        producer.shutdown();
        a.shutdown();
        b.shutdown();
    }

    private static DefaultMQPushConsumer member(String namesrv, String topic, String name) throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "broadcast_group", name);
        Talk.model(consumer, "BROADCASTING");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got(name, m, "-");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
