import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams application, exactly once: counts the words of `lines` by way of a repartition topic into `counts`, and joins each
 * word with the table `meanings` into `explained`. Runs until it is ended. Arguments: bootstrap, folder for its state, and the group
 * protocol (classic or streams).
 */
public final class Words {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "words");
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 10000);
        String protocol = arguments.length > 2 ? arguments[2] : "classic";
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        if (protocol.equals("classic")) {
            // In the other protocol the broker decides.
            settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        }
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("auto.offset.reset", "earliest");

        var text = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream("lines", Consumed.with(text, text))
            .flatMapValues(line -> Arrays.asList(line.split(" ")));
        words.groupBy((key, word) -> word, Grouped.with("by-word", text, text))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counted")).withKeySerde(text).withValueSerde(Serdes.Long()))
            .toStream().mapValues(String::valueOf).to("counts", Produced.with(text, text));
        var meanings = builder.table("meanings", Consumed.with(text, text),
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("meaning")).withKeySerde(text).withValueSerde(text));
        words.selectKey((key, word) -> word)
            .join(meanings, (word, meaning) -> word + "=" + meaning, Joined.with(text, text, text, "with-meaning"))
            .to("explained", Produced.with(text, text));

        KafkaStreams application = new KafkaStreams(builder.build(), settings);
        application.setUncaughtExceptionHandler(failure -> {
            System.err.println("a thread is replaced after " + failure);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        // Who is ended, and not killed, leaves the group.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> application.close(Duration.ofSeconds(10))));
        application.start();
    }
}
