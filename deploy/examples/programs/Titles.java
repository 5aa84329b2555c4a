// A Kafka Streams program beside Parley: it asks for a title of each conversation that has a second turn.
// It may be killed at any moment: its state, its offsets and what it asks are one transaction.

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Titles {
    static final String TITLES = "titles";
    static final String FIRST = "first";

    // What is used of a record of `turns`; the other fields are left out.
    @JsonIgnoreProperties(ignoreUnknown = true)
    record Turn(String request_id, String user_id, String conversation_id, String prompt) {}

    record Request(String request_id, String user_id, String conversation_id, String prompt) {}

    static class Ask implements Processor<String, Turn, String, Request> {
        private ProcessorContext<String, Request> context;
        private KeyValueStore<String, String> first;

        @Override
        public void init(ProcessorContext<String, Request> context) {
            this.context = context;
            first = context.getStateStore(FIRST);
        }

        @Override
        public void process(Record<String, Turn> record) {
            Turn turn = record.value();
            if (turn == null || turn.conversation_id().equals(TITLES)) return;
            String conversation = turn.user_id() + "/" + turn.conversation_id();
            String before = first.get(conversation);
            if (before == null) {
                first.put(conversation, turn.request_id());
            } else if (!before.equals(turn.request_id()) && !before.equals(TITLES)) {
                first.put(conversation, TITLES);
                String prompt = "Name this conversation in five words: " + turn.prompt();
                String id = "title-" + turn.conversation_id();
                context.forward(record.withValue(new Request(id, turn.user_id(), TITLES, prompt)));
            }
        }
    }

    static <T> Serde<T> json(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return mapper.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : mapper.readValue(bytes, type);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }

    public static void main(String[] arguments) {
        Map<String, String> environment = System.getenv();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(FIRST), Serdes.String(), Serdes.String()));
        builder.stream(environment.getOrDefault("TURNS", "turns"), Consumed.with(Serdes.String(), json(Turn.class)))
            .process(Ask::new, FIRST)
            .to(environment.getOrDefault("REQUESTS", "requests"), Produced.with(Serdes.String(), json(Request.class)));

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "titles-streams");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, environment.get("KAFKA"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
