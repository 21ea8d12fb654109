import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client. {@code produce BOOTSTRAP COUNT TOPIC=CODEC ...} and {@code consume BOOTSTRAP COUNT TOPIC ...}. */
public final class Client {
    /** How to log in, as {@code login.py} describes it. */
    private static Map<String, Object> withLogin(Map<String, Object> plain) {
        Map<String, Object> settings = new HashMap<>(plain);
        String login = System.getenv("CONFORMANCE_LOGIN");
        String authority = System.getenv("CONFORMANCE_CA");
        settings.put("security.protocol", (login == null ? "" : "SASL_") + (authority == null ? "PLAINTEXT" : "SSL"));
        if (login != null) {
            String[] parts = login.split(":", 3);
            settings.put("sasl.mechanism", parts[0]);
            if (parts[0].equals("OAUTHBEARER")) {
                return withTrust(withToken(settings, "file://" + parts[2]));
            }
            String module = parts[0].equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module
                + " required username=\"" + parts[1] + "\" password=\"" + parts[2] + "\";");
        }
        return withTrust(settings);
    }

    /** With a token that is in a file. */
    private static Map<String, Object> withToken(Map<String, Object> settings, String url) {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", url.substring("file://".length()));
        String kafkas = "org.apache.kafka.common.security.oauthbearer.";
        settings.put("sasl.jaas.config", kafkas + "OAuthBearerLoginModule required;");
        settings.put("sasl.login.callback.handler.class", kafkas + "OAuthBearerLoginCallbackHandler");
        settings.put("sasl.oauthbearer.token.endpoint.url", url);
        return settings;
    }

    private static Map<String, Object> withTrust(Map<String, Object> settings) {
        String authority = System.getenv("CONFORMANCE_CA");
        if (authority != null) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", authority);
        }
        return settings;
    }

    private static void produce(String bootstrap, long count, String topic, String codec) throws Exception {
        Map<String, Object> settings = withLogin(Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 5));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (long number = 0; number < count; number++) {
                answers.add(producer.send(Records.record(topic, number)));
            }
            for (Future<RecordMetadata> answer : answers) {
                answer.get();
            }
        }
    }

    private static void consume(String bootstrap, long count, String topic) throws Exception {
        Map<String, Object> settings = withLogin(Map.of("bootstrap.servers", bootstrap, "max.poll.records", 5000));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> everything = new ArrayList<>();
            for (int partition = 0; partition < Records.partitions(topic); partition++) {
                everything.add(new TopicPartition(topic, partition));
            }
            consumer.assign(everything);
            consumer.seekToBeginning(everything);
            Map<Integer, Long> next = new HashMap<>();
            long deadline = System.nanoTime() + Duration.ofSeconds(120).toNanos();
            for (long seen = 0; seen < count; ) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + seen + " of " + count + " came");
                }
                for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofSeconds(1))) {
                    Records.check(got, next.merge(got.partition(), 1L, Long::sum) - 1);
                    seen++;
                }
            }
        }
    }

    public static void main(String[] arguments) {
        long count = Long.parseLong(arguments[2]);
        for (String target : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            String[] parts = target.split("=");
            try {
                if (arguments[0].equals("produce")) {
                    produce(arguments[1], count, parts[0], parts[1]);
                } else {
                    consume(arguments[1], count, parts[0]);
                }
                System.out.println("ok " + parts[0]);
            } catch (Exception failure) {
                System.out.println("FAIL " + parts[0] + " " + failure);
            }
        }
        System.exit(0);
    }
}
