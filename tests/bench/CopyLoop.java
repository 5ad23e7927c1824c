import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The scale of the benchmark: a plain consumer that hands every record to a plain producer, batches of 128 KB. */
public class CopyLoop {
    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[4]);
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", args[0], "auto.offset.reset", "earliest", "max.partition.fetch.bytes", 4194304,
            "fetch.max.bytes", 8388608, "max.poll.records", 10000, "isolation.level", args[6]);
        Map<String, Object> writing = Map.of(
            "bootstrap.servers", args[1], "batch.size", 131072, "linger.ms", 20, "buffer.memory", 67108864L,
            "compression.type", args[5]);
        var bytes = new ByteArrayDeserializer();
        var failure = new AtomicReference<Exception>();
        try (var consumer = new KafkaConsumer<>(reading, bytes, bytes);
             var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<TopicPartition> parts = consumer.partitionsFor(args[2]).stream()
                .map(part -> new TopicPartition(part.topic(), part.partition())).toList();
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            long began = System.nanoTime();
            for (long copied = 0; copied < records;) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    producer.send(
                        new ProducerRecord<>(args[3], each.partition(), each.timestamp(), each.key(), each.value(),
                            each.headers()),
                        (done, error) -> failure.compareAndSet(null, error));
                    copied++;
                }
            }
            producer.flush();
            if (failure.get() != null) throw failure.get();
            System.out.println("seconds " + (System.nanoTime() - began) / 1e9);
        }
    }
}
