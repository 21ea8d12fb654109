import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * RabbitMQ's own client for Java, as an ordinary program uses it: confirms by a listener and by waiting, a headers exchange with an alternate,
 * competing consumers, a transaction, an exclusive queue, an error that closes its channel. Arguments: URL, how many messages.
 */
public final class Amqp {
    private static final long PATIENCE_S = 60;

    private Amqp() {}

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        try (Connection connection = factory.newConnection("conformance")) {
            String name = "java-" + System.nanoTime();
            Channel channel = connection.createChannel();
            channel.exchangeDeclare(name + "-rest", "fanout", true);
            channel.exchangeDeclare(name, "headers", true, false, Map.of("alternate-exchange", name + "-rest"));
            channel.queueDeclare(name, true, false, false, Map.of("x-max-length-bytes", 1_000_000_000));
            channel.queueDeclare(name + "-rest", true, false, false, null);
            channel.queueBind(name, name, "", Map.of("x-match", "all", "kind", "wanted"));
            channel.queueBind(name + "-rest", name + "-rest", "");
            publish(connection, name, count);
            consume(connection, name, count);
            check(channel.messageCount(name) == 0, "messages are left");
            check(channel.messageCount(name + "-rest") == 1, "the alternate exchange did not get its message");
            transaction(connection, name);
            error(connection, name);
            channel.queueDelete(name);
            channel.queueDelete(name + "-rest");
            channel.exchangeDelete(name);
            channel.exchangeDelete(name + "-rest");
        }
        closes(factory, 500);
        refusals(arguments[0], 500);
        System.out.println(count + " messages");
    }

    /** Connections that are closed in good order: nobody is told of an error. */
    private static void closes(ConnectionFactory factory, int count) throws Exception {
        for (int number = 0; number < count; number++) {
            Connection connection = factory.newConnection();
            java.util.concurrent.atomic.AtomicReference<com.rabbitmq.client.ShutdownSignalException> told = new java.util.concurrent.atomic.AtomicReference<>();
            connection.addShutdownListener(told::set);
            connection.close();
            check(told.get() == null || told.get().isInitiatedByApplication(), "close " + number + " was told as " + told.get());
        }
    }

    /** Logins with another password: each is told why, and none finds its connection reset. */
    private static void refusals(String url, int count) throws Exception {
        ConnectionFactory wrong = new ConnectionFactory();
        wrong.setUri(url);
        wrong.setPassword("another password");
        for (int number = 0; number < count; number++) {
            try (Connection connection = wrong.newConnection()) {
                throw new IllegalStateException("login " + number + " is let in: " + connection);
            } catch (AuthenticationFailureException refused) {
                check(refused.getMessage().contains("ACCESS_REFUSED"), refused.getMessage());
            }
        }
    }

    private static void check(boolean holds, String complaint) {
        if (!holds) {
            throw new IllegalStateException(complaint);
        }
    }

    private static AMQP.BasicProperties properties(String kind, int number) {
        return MessageProperties.PERSISTENT_TEXT_PLAIN.builder().headers(Map.of("kind", kind)).messageId(Integer.toString(number)).build();
    }

    private static void publish(Connection connection, String exchange, int count) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        Set<Long> open = new ConcurrentSkipListSet<>();
        BlockingQueue<Long> refused = new LinkedBlockingQueue<>();
        channel.addConfirmListener((tag, multiple) -> {
            if (multiple) {
                open.removeIf(one -> one <= tag);
            } else {
                open.remove(tag);
            }
        }, (tag, multiple) -> refused.add(tag));
        for (int number = 0; number < count; number++) {
            open.add(channel.getNextPublishSeqNo());
            channel.basicPublish(exchange, "", properties("wanted", number), Integer.toString(number).getBytes(StandardCharsets.UTF_8));
        }
        channel.basicPublish(exchange, "", properties("other", count), new byte[0]);
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        check(open.isEmpty() && refused.isEmpty(), open.size() + " messages without a confirm, refused " + refused);
        channel.close();
    }

    private static void consume(Connection connection, String queue, int count) throws Exception {
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        CountDownLatch left = new CountDownLatch(count);
        List<Channel> channels = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Channel channel = connection.createChannel();
            channels.add(channel);
            channel.basicQos(10);
            DeliverCallback take = (tag, message) -> {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                check(body.equals(message.getProperties().getMessageId()), "a message is not as it was: " + body);
                seen.merge(body, 1, Integer::sum);
                channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
                left.countDown();
            };
            channel.basicConsume(queue, false, take, tag -> {});
        }
        check(left.await(PATIENCE_S, TimeUnit.SECONDS), "only " + seen.size() + " of " + count + " messages came");
        for (Channel channel : channels) {
            channel.close();
        }
        check(seen.size() == count && seen.values().stream().allMatch(times -> times == 1), "messages came twice");
    }

    private static void transaction(Connection connection, String queue) throws Exception {
        Channel channel = connection.createChannel();
        channel.txSelect();
        channel.basicPublish("", queue, properties("none", 1), "in vain".getBytes(StandardCharsets.UTF_8));
        channel.txRollback();
        channel.basicPublish("", queue, properties("none", 2), "for good".getBytes(StandardCharsets.UTF_8));
        channel.txCommit();
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        String own = connection.createChannel().queueDeclare().getQueue();
        Channel reader = connection.createChannel();
        reader.basicConsume(queue, true, (tag, message) -> got.add(new String(message.getBody(), StandardCharsets.UTF_8)), tag -> {});
        reader.basicConsume(own, true, (tag, message) -> got.add("own"), tag -> {});
        check("for good".equals(got.poll(PATIENCE_S, TimeUnit.SECONDS)), "what was committed did not come alone");
        reader.basicPublish("", own, null, new byte[0]);
        check("own".equals(got.poll(PATIENCE_S, TimeUnit.SECONDS)), "nothing came to an exclusive queue");
        channel.close();
        reader.close();
    }

    private static void error(Connection connection, String queue) throws IOException {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclare(queue, false, false, false, null);
            throw new IllegalStateException("another queue of that name was taken");
        } catch (IOException | AlreadyClosedException refused) {
            ShutdownSignalException cause = (ShutdownSignalException) (refused instanceof IOException ? refused.getCause() : refused);
            int code = ((AMQP.Channel.Close) cause.getReason()).getReplyCode();
            check(code == 406, code + " instead of 406");
        }
        check(connection.isOpen() && connection.createChannel().isOpen(), "the connection was closed as well");
    }
}
