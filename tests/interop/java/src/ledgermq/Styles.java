package ledgermq;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends batches of three, asynchronously and oneway, one of each in turn. Usage: Styles NAMESRV TOPIC COUNT.
 *
 * A oneway message, which nobody acknowledges, goes to a leader that has just acknowledged another, and has come before
 * the test goes on: so all of them are to come, and are told as acknowledged.
 */
public final class Styles {
    private static final int BATCH = 3;
    private static final Set<String> GOT = ConcurrentHashMap.newKeySet();

    private Styles() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("styles_producer"), args[0]);
        producer.setRetryTimesWhenSendAsyncFailed(20);
        producer.start();
        Talk.send("styles-first", () -> producer.send(Talk.message(args[1], "k", "styles-first")));
        DefaultMQPushConsumer consumer = member(args[0], args[1]);
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                String last = "oneway-" + (i - 1);
                Talk.until(() -> GOT.contains(last), 60_000);
                Talk.half();
            }
            batch(producer, args[1], i);
            String body = "async-" + i;
            Talk.send(body, () -> async(producer, Talk.message(args[1], "k", body)));
            producer.sendOneway(Talk.message(args[1], "k", "oneway-" + i));
            Talk.say("ACK oneway-" + i + " -");
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer member(String namesrv, String topic) throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "styles_group", "c");
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got("c", m, m.getMsgId());
                GOT.add(Talk.body(m));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void batch(DefaultMQProducer producer, String topic, int number) throws Exception {
        String stem = "batch-" + number + "-";
        SendResult result = Talk.send(stem + 0, () -> {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                messages.add(Talk.message(topic, "k", stem + i));
            }
            return producer.send(messages);
        });
        for (int i = 1; i < BATCH; i++) {
            Talk.say("ACK " + stem + i + " " + result.getMessageQueue().getQueueId());
        }
        Talk.say("IDS " + stem + " " + result.getMsgId());
    }

    private static SendResult async(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<SendResult> done = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                done.completeExceptionally(error);
            }
        });
        return done.get(60, TimeUnit.SECONDS);
    }
}
