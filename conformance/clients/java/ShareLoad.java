import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group, threads of one process, that accept each record. Once so many are accepted and the broker has confirmed it,
 * prints `begin`; so many later prints what it took, and goes on until its input ends. Arguments: bootstrap, group, topic, members, records
 * before, records, acquire mode.
 */
public final class ShareLoad {
    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[3]);
        long before = Long.parseLong(arguments[4]), wanted = Long.parseLong(arguments[5]);
        AtomicLong accepted = new AtomicLong(), failed = new AtomicLong(), polls = new AtomicLong();
        AtomicBoolean ends = new AtomicBoolean();
        Thread[] threads = new Thread[members];
        for (int at = 0; at < members; at++) {
            Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1],
                "share.acknowledgement.mode", "explicit", "share.acquire.mode", arguments[6]);
            threads[at] = new Thread(() -> {
                try (var consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                        long count = offsets.values().stream().mapToLong(java.util.Set::size).sum();
                        (error == null ? accepted : failed).addAndGet(count);
                    });
                    consumer.subscribe(List.of(arguments[2]));
                    while (!ends.get()) {
                        var records = consumer.poll(Duration.ofMillis(100));
                        for (ConsumerRecord<byte[], byte[]> one : records) {
                            consumer.acknowledge(one, AcknowledgeType.ACCEPT);
                        }
                        polls.incrementAndGet();
                    }
                }
            });
            threads[at].start();
        }
        reached(accepted, before);
        long began = System.nanoTime(), used = cpu(), from = accepted.get(), fromPolls = polls.get();
        System.out.println("begin");
        reached(accepted, from + wanted);
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf("{\"records\": %d, \"failed\": %d, \"seconds\": %.3f, \"client_cpu_s\": %.3f, \"polls\": %d}%n",
            accepted.get() - from, failed.get(), seconds, (cpu() - used) / 1e9,
            polls.get() - fromPolls);
        System.out.flush();
        while (System.in.read() >= 0) { }
        ends.set(true);
        for (Thread each : threads) {
            each.join();
        }
    }

    private static void reached(AtomicLong accepted, long wanted) throws InterruptedException {
        while (accepted.get() < wanted) {
            Thread.sleep(1);
        }
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
