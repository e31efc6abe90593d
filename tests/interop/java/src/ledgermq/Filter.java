package ledgermq;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends with three tags in turn and two properties; one group selects by tags, another one by SQL92.
 *
 * Usage: Filter NAMESRV TOPIC COUNT. Number i has the tag T0, T1 or T2 by i % 3, "price" i, and "city" if i is odd.
 */
public final class Filter {
    private Filter() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("filter_producer"), args[0]);
        producer.start();
        Talk.send("filter-first", () -> producer.send(new Message(args[1], "none", "filter-first".getBytes())));
        DefaultMQPushConsumer tags = member(args[0], args[1], "tags", MessageSelector.byTag("T0 || T2"));
        DefaultMQPushConsumer sql = member(args[0], args[1], "sql",
            MessageSelector.bySql("price BETWEEN 10 AND 29 AND (city = 'rome' OR TAGS IN ('T1'))"));
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "filter-" + i;
            Message message = new Message(args[1], "T" + i % 3, "k", body.getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("price", "" + i);
            if (i % 2 == 1) {
                message.putUserProperty("city", "rome");
            }
            Talk.send(body, () -> producer.send(message));
        }
        Talk.untilTold();
        producer.shutdown();
        tags.shutdown();
        sql.shutdown();
    }

    private static DefaultMQPushConsumer member(String namesrv, String topic, String name, MessageSelector selector)
        throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "filter_" + name, name);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got(name, m, m.getTags());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
