import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The transactional kind of conformance/checker/writers.py, with the Java client and so with the second protocol of transactions. Writes
 * the same history. Arguments: bootstrap, folder of the history, name of the process, first value, transactional id, time-out of
 * transactions in milliseconds, topics as NAME=PARTITIONS.
 */
public final class Transact {
    private static final Random RANDOM = new Random();
    private static final List<TopicPartition> KEYS = new ArrayList<>();
    private static FileOutputStream history;
    private static String name;
    private static long value;
    private static volatile boolean running = true;

    public static void main(String[] arguments) throws Exception {
        name = arguments[2];
        history = new FileOutputStream(arguments[1] + "/" + name + ".jsonl", true);
        value = Long.parseLong(arguments[3]);
        int timeout = Integer.parseInt(arguments[5]);
        for (int at = 6; at < arguments.length; at++) {
            String[] topic = arguments[at].split("=");
            for (int partition = 0; partition < Integer.parseInt(topic[1]); partition++) {
                KEYS.add(new TopicPartition(topic[0], partition));
            }
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            running = false;
            try {
                main.join(20_000);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", arguments[4],
            "transaction.timeout.ms", timeout, "reconnect.backoff.max.ms", 200, "linger.ms", 2);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            while (running) {
                String transaction = name + ":" + value;
                try {
                    transact(producer, transaction, timeout);
                } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
                    throw fatal;
                } catch (KafkaException failure) {
                    end(producer, transaction, true);
                }
            }
        } catch (Exception fatal) {
            System.err.println("KafkaException: " + fatal);
            Runtime.getRuntime().halt(1);
        }
    }

    private static void transact(KafkaProducer<String, String> producer, String transaction, int timeout) throws Exception {
        producer.beginTransaction();
        for (int rounds = 1 + RANDOM.nextInt(4); rounds > 0; rounds--) {
            for (int count = 1 + RANDOM.nextInt(6); count > 0; count--) {
                send(producer, transaction);
            }
            Thread.sleep(RANDOM.nextInt(3) * 10L);
        }
        double kind = RANDOM.nextDouble();
        if (kind < 0.01) {
            // The broker ends it meanwhile.
            producer.flush();
            Thread.sleep(timeout + 2000);
        }
        if (kind < 0.1) {
            producer.flush();
        }
        end(producer, transaction, kind < 0.2);
    }

    private static void send(KafkaProducer<String, String> producer, String transaction) {
        TopicPartition key = KEYS.get(RANDOM.nextInt(KEYS.size()));
        long sent = value++;
        String place = ",\"k\":\"" + key.topic() + "/" + key.partition() + "\",\"v\":" + sent;
        note("send", place + ",\"x\":\"" + transaction + "\"");
        producer.send(new ProducerRecord<>(key.topic(), key.partition(), null, Long.toString(sent)), (done, failure) -> {
            if (failure == null) {
                note("ack", place + ",\"o\":" + done.offset());
            } else {
                note("nak", place + ",\"why\":\"" + failure.getClass().getSimpleName() + "\"");
            }
        });
    }

    private static void end(KafkaProducer<String, String> producer, String transaction, boolean aborts) {
        String which = ",\"x\":\"" + transaction + "\"";
        note(aborts ? "abort" : "commit", which);
        if (aborts) {
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
        note(aborts ? "aborted" : "committed", which);
    }

    /** One line, in one system call. Its time is that of all processes' monotonic clock. */
    private static synchronized void note(String event, String more) {
        String line = "{\"t\":" + System.nanoTime() + ",\"p\":\"" + name + "\",\"e\":\"" + event + "\"" + more + "}\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException failure) {
            Runtime.getRuntime().halt(3);
        }
    }
}
