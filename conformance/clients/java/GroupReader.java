import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group: {@code GroupReader BOOTSTRAP GROUP TOPIC COUNT END SETTING=VALUE ...} reads until it has COUNT records and its
 * positions add up to END, commits, and prints the records as {@code PARTITION OFFSET} and what is committed as {@code committed SUM}.
 */
public final class GroupReader {
    public static void main(String[] arguments) {
        String topic = arguments[2];
        long count = Long.parseLong(arguments[3]);
        long end = Long.parseLong(arguments[4]);
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1], "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "check.crcs", "true"));
        for (int at = 5; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        StringBuilder seen = new StringBuilder();
        long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            long records = 0;
            long reached = 0;
            while (System.nanoTime() < deadline && (records < count || reached < end)) {
                for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofMillis(200))) {
                    seen.append(got.partition()).append(' ').append(got.offset()).append('\n');
                    records++;
                }
                reached = 0;
                for (TopicPartition partition : consumer.assignment()) {
                    reached += consumer.position(partition);
                }
            }
            consumer.commitSync();
            long committed = 0;
            for (var offset : consumer.committed(consumer.assignment()).values()) {
                committed += offset == null ? 0 : offset.offset();
            }
            System.out.print(seen);
            System.out.println("committed " + committed);
        }
        System.exit(0);
    }
}
