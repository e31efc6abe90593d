package ledgermq;

import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What the feature programs share: lines to the test, settings that find a new leader soon. */
final class Talk {
    private Talk() { }

    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    /** Tell that half of the work is done and wait until the test lets it go on. */
    static void half() throws Exception {
        say("HALF");
        int c = System.in.read();
        while (c != '\n' && c != -1) {
            c = System.in.read();
        }
    }

    /** Wait until the test has seen enough. */
    static void untilTold() throws Exception {
        say("SENT");
        System.in.read();
    }

    /** Wait until something holds for 2 s, at most so long. */
    static void until(java.util.function.BooleanSupplier holds, long timeoutMs) throws Exception {
        long end = System.currentTimeMillis() + timeoutMs;
        for (int times = 0; times < 20 && System.currentTimeMillis() < end; Thread.sleep(100)) {
            times = holds.getAsBoolean() ? times + 1 : 0;
        }
    }

    static <P extends DefaultMQProducer> P ready(P producer, String namesrv) {
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(20);
        producer.setPollNameServerInterval(1_000);
        producer.setHeartbeatBrokerInterval(1_000);
        return producer;
    }

    static DefaultMQPushConsumer consumer(String namesrv, String group, String instance) {
        return ready(new DefaultMQPushConsumer(group), namesrv, instance);
    }

    static DefaultMQPushConsumer ready(DefaultMQPushConsumer consumer, String namesrv, String instance) {
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPersistConsumerOffsetInterval(1_000);
        return consumer;
    }

    /** Set the message model by name: its package differs between RocketMQ 4 and 5. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void model(DefaultMQPushConsumer consumer, String name) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], name));
            }
        }
    }

    /** A send, which a program tries again: Java's client spends its own attempts within a moment. */
    interface Send {
        SendResult run() throws Exception;
    }

    /** Send, again and again until an attempt is acknowledged or too many failed. */
    static SendResult send(String body, Send send) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                SendResult result = send.run();
                acknowledged(body, result);
                return result;
            } catch (Exception e) {
                if (attempt == 100) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    static Message message(String topic, String key, String body) {
        return new Message(topic, "TagA", key, body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void acknowledged(String body, SendResult result) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            say("ACK " + body + " " + result.getMessageQueue().getQueueId());
        } else {
            say("ERR " + body + " " + result.getSendStatus());
        }
    }

    static void got(String who, MessageExt m, String more) {
        say("GOT " + who + " " + body(m) + " " + m.getQueueId() + " " + m.getReconsumeTimes() + " " + more);
    }
}
