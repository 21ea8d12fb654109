import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The records of records.py, for the Java client. */
final class Records {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    static boolean isText(String topic) {
        return topic.contains("-text-");
    }

    static int partitions(String topic) {
        return isText(topic) ? 1 : 3;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, long number) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes(topic + "/" + number));
        byte[] key = bytes("key-" + number % 977);
        int partition = (int) (number % partitions(topic));
        if (isText(topic)) {
            byte[] value = bytes(HexFormat.of().formatHex(digest).repeat((int) (1 + number % 9)));
            return new ProducerRecord<>(topic, partition, null, key, value, List.of(header("from", bytes("text"))));
        }
        byte[] value = new byte[((digest[0] & 0xff) << 8 | digest[1] & 0xff) % 2049];
        for (int at = 0; at < value.length; at++) {
            value[at] = digest[at % digest.length];
        }
        List<Header> headers = List.of(
            header("number", bytes(Long.toString(number))), header("twice", bytes("a")),
            header("twice", Arrays.copyOf(digest, 4)), header("empty", new byte[0]));
        return new ProducerRecord<>(topic, partition, FIRST_TIMESTAMP + number, number % 11 == 3 ? null : key,
            number % 101 == 7 && number % 11 != 3 ? null : value, headers);
    }

    /** Throws when a consumed record is not the one that was written at its place. */
    static void check(ConsumerRecord<byte[], byte[]> got, long offset) throws Exception {
        long number = got.offset() * partitions(got.topic()) + got.partition();
        ProducerRecord<byte[], byte[]> want = record(got.topic(), number);
        require(got.offset() == offset, "offset " + got.offset() + " instead of " + offset);
        require(Arrays.equals(got.key(), want.key()), "key of " + number);
        require(Arrays.equals(got.value(), want.value()), "value of " + number);
        require(Arrays.equals(got.headers().toArray(), want.headers().toArray()), "headers of " + number);
        require(want.timestamp() == null || got.timestamp() == want.timestamp(), "timestamp of " + number);
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    private static Header header(String name, byte[] value) {
        return new RecordHeader(name, value);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
