package ledgermq;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push-consumes a topic and prints "GOT body queueId queueOffset msgId" until a line arrives on stdin.
 *
 * Usage: Consume NAMESRV GROUP TOPIC [SQL92].
 */
public final class Consume {
    private Consume() { }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPersistConsumerOffsetInterval(1_000);
        if (args.length > 3) {
            consumer.subscribe(args[2], MessageSelector.bySql(args[3]));
        } else {
            consumer.subscribe(args[2], "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                say("GOT " + new String(m.getBody(), StandardCharsets.UTF_8) + " " + m.getQueueId() + " "
                    + m.getQueueOffset() + " " + m.getMsgId());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("STARTED");
        System.in.read();
        consumer.shutdown();
        say("END");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
