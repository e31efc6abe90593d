package ledgermq;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Asks by messages and answers them (request-reply). Usage: Ask NAMESRV TOPIC COUNT. */
public final class Ask {
    private Ask() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("ask_producer"), args[0]);
        producer.setInstanceName("asks");
        producer.start();
        Talk.send("ask-first", () -> producer.send(Talk.message(args[1], "0", "ask-first")));
        DefaultMQProducer answers = Talk.ready(new DefaultMQProducer("answer_producer"), args[0]);
        answers.setInstanceName("answers");
        answers.start();
        DefaultMQPushConsumer consumer = Talk.consumer(args[0], "answer_group", "c");
        consumer.setPullTimeDelayMillsWhenException(100);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                try {
                    byte[] body = ("re:" + Talk.body(m)).getBytes(StandardCharsets.UTF_8);
                    Talk.say("ANSWERED " + answers.send(MessageUtil.createReplyMessage(m, body), 3_000).getSendStatus());
                } catch (Exception e) {
                    Talk.say("LATE " + Talk.body(m) + " " + e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            for (int attempt = 0; ; attempt++) {
                try {
                    Message reply = ask(producer, Talk.message(args[1], "k", "ask-" + i));
                    Talk.say("REPLY ask-" + i + " " + Talk.body(reply));
                    break;
                } catch (Exception e) {
                    Talk.say("AGAIN ask-" + i + " " + e);
                    if (attempt == 20) {
                        throw e;
                    }
                    Thread.sleep(200);
                }
            }
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
        answers.shutdown();
    }

    /** Ask by the call that works in 5.3.3 as well: others there take the sent request for its answer. */
    private static Message ask(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, (queues, asked, arg) -> queues.get(0), null, new RequestCallback() {
            @Override
            public void onSuccess(Message got) {
                reply.complete(got);
            }

            @Override
            public void onException(Throwable e) {
                reply.completeExceptionally(e);
            }
        }, 5_000);
        return reply.get();
    }
}
