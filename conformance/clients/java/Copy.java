import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What conformance/transactions/copy.py does, with the Java client: copies records from one topic to another in transactions until
 * it is ended. Arguments: bootstrap, source, target, transactional id; the group is the target's name.
 */
public final class Copy {
    private static final Random RANDOM = new Random();

    public static void main(String[] arguments) {
        String source = arguments[1], target = arguments[2];
        Map<String, Object> reading = Map.of("bootstrap.servers", arguments[0], "group.id", target, "isolation.level", "read_committed",
            "enable.auto.commit", false, "auto.offset.reset", "earliest", "session.timeout.ms", 6000, "max.poll.records", 200);
        Map<String, Object> writing = Map.of("bootstrap.servers", arguments[0], "transactional.id", arguments[3],
            "transaction.timeout.ms", 10000, "reconnect.backoff.max.ms", 500);
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<String, String> read = consumer.poll(Duration.ofMillis(200));
                if (read.isEmpty()) {
                    continue;
                }
                try {
                    transact(consumer, producer, read, target);
                } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
                    throw fatal;
                } catch (KafkaException failure) {
                    System.err.println("aborts after " + failure);
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        } catch (Exception fatal) {
            System.err.println("ends after " + fatal);
            System.exit(1);
        }
    }

    private static void transact(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> read, String target) {
        boolean aborts = RANDOM.nextInt(5) == 0;
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> one : read) {
            int partition = Integer.parseInt(one.value()) % 3;
            producer.send(new ProducerRecord<>(target, partition, one.key(), aborts ? "aborted" : one.value()));
            positions.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        if (aborts) {
            producer.flush();
            producer.abortTransaction();
            rewind(consumer);
        } else {
            producer.commitTransaction();
        }
    }

    /** Back to what is committed. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        for (var place : consumer.committed(consumer.assignment()).entrySet()) {
            consumer.seek(place.getKey(), place.getValue() == null ? 0 : place.getValue().offset());
        }
    }
}
