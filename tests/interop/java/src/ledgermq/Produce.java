package ledgermq;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends with every style of the published client and prints one line per outcome.
 *
 * Usage: Produce NAMESRV TOPIC COUNT. For each style (sync, async, oneway, batch) COUNT messages are
 * sent; then the line "READY-FOR-KILL" is printed and sync sends go on until "DONE" arrives on stdin.
 * Lines: "ACK style body msgId queueId queueOffset" and "ERR style body class message".
 */
public final class Produce {
    private Produce() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop_producer");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(20);
        producer.setPollNameServerInterval(1_000);
        producer.start();
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            sendSync(producer, topic, "sync", i);
        }
        sendAsync(producer, topic, count);
        for (int i = 0; i < count; i++) {
            producer.sendOneway(message(topic, "oneway-" + i));
        }
        sendBatch(producer, topic, count);
        say("READY-FOR-KILL");
        int sent = 0;
        while (System.in.available() == 0) {
            sendSync(producer, topic, "failover", sent++);
            Thread.sleep(5);
        }
        producer.shutdown();
        say("END " + sent);
    }

    private static Message message(String topic, String body) {
        Message message = new Message(topic, "TagA", body, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("body", body);
        return message;
    }

    private static void sendSync(DefaultMQProducer producer, String topic, String style, int i) {
        String body = style + "-" + i;
        try {
            acknowledge(style, body, producer.send(message(topic, body)));
        } catch (Exception e) {
            fail(style, body, e);
        }
    }

    private static void sendAsync(DefaultMQProducer producer, String topic, int count) throws Exception {
        CountDownLatch latch = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            String body = "async-" + i;
            producer.send(message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    acknowledge("async", body, result);
                    latch.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    fail("async", body, e);
                    latch.countDown();
                }
            });
        }
        if (!latch.await(30, TimeUnit.SECONDS)) {
            say("ERR async - timeout waiting for callbacks");
        }
    }

    private static void sendBatch(DefaultMQProducer producer, String topic, int count) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            batch.add(message(topic, "batch-" + i));
        }
        try {
            SendResult result = producer.send(batch);
            for (Message m : batch) {
                acknowledge("batch", new String(m.getBody(), StandardCharsets.UTF_8), result);
            }
        } catch (Exception e) {
            fail("batch", "batch", e);
        }
    }

    private static void acknowledge(String style, String body, SendResult result) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            say("ACK " + style + " " + body + " " + result.getOffsetMsgId() + " "
                + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
        } else {
            say("ERR " + style + " " + body + " " + result.getSendStatus());
        }
    }

    private static void fail(String style, String body, Throwable e) {
        say("ERR " + style + " " + body + " " + String.valueOf(e).replace('\n', ' '));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
