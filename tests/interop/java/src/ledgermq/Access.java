package ledgermq;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** One account sends a message, a batch, and pulls a queue; each outcome is a line. */
public final class Access {
    private Access() { }

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        String group = args[2];
        RPCHook hook = args.length < 5 ? null : new AclClientRPCHook(new SessionCredentials(args[3], args[4]));
        DefaultMQProducer producer = new DefaultMQProducer("access_producer", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
        outcome("SEND", () -> producer.send(new Message(topic, body), 10_000).getSendStatus().name());
        outcome("BATCH", () -> producer.send(
            java.util.Arrays.asList(new Message(topic, body), new Message(topic, body)), 10_000).getSendStatus().name());
        producer.shutdown();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
        outcome("PULL", () -> {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                PullResult result = consumer.pull(queue, "*", 0, 32);
                if (result.getMsgFoundList() != null && !result.getMsgFoundList().isEmpty()) {
                    return "FOUND";
                }
            }
            return "NOTHING";
        });
        consumer.shutdown();
        System.exit(0);
    }

    private static void outcome(String what, java.util.concurrent.Callable<String> call) {
        String said;
        try {
            said = call.call();
        } catch (Exception error) {
            // A send that was refused is wrapped once its attempts are spent.
            Throwable last = error instanceof MQBrokerException ? error : error.getCause();
            said = last instanceof MQBrokerException broker
                ? broker.getResponseCode() + " " + broker.getErrorMessage() : error.toString();
        }
        System.out.println(what + " " + said.replace('\n', ' '));
        System.out.flush();
    }
}
