import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * An independent reader. Each line asked is "BOOTSTRAP TOPIC ISOLATION RULE"; each line answered is "PARTITION:COUNT:DIGEST ...",
 * where the digest covers timestamps, keys, values and headers of the partition's records in their order. RULE says what
 * a copy is to make of them: "all" nothing, "placed" only those whose JSON says so, "masked" without the customer.
 */
public class Digest {
    static final class Sum {
        long count, digest;
    }

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] asked = line.split(" ");
            try {
                System.out.println(digest(asked[0], asked[1], asked[2], asked.length > 3 ? asked[3] : "all"));
            } catch (Exception error) {
                System.out.println("error " + error);
            }
            System.out.flush();
        }
    }

    static String digest(String bootstrap, String topic, String isolation, String rule) {
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", isolation, "max.partition.fetch.bytes", 4194304,
            "fetch.max.bytes", 33554432, "max.poll.records", 20000, "fetch.max.wait.ms", 20, "check.crcs", "true");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(reading, bytes, bytes)) {
            List<TopicPartition> parts = consumer.partitionsFor(topic).stream()
                .map(part -> new TopicPartition(part.topic(), part.partition())).toList();
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(parts));
            ends.values().removeIf(end -> end == 0);
            Map<Integer, Sum> sums = new TreeMap<>();
            while (!ends.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    if (rule.equals("placed") && !text(each).contains("\"kind\": \"order placed\"")) continue;
                    Sum sum = sums.computeIfAbsent(each.partition(), number -> new Sum());
                    sum.count++;
                    sum.digest = sum.digest * 1000003 + checksum(each, rule.equals("masked") ? masked(text(each)) : each.value());
                }
                ends.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
            }
            return sums.entrySet().stream()
                .map(each -> each.getKey() + ":" + each.getValue().count + ":" + Long.toHexString(each.getValue().digest))
                .collect(Collectors.joining(" "));
        }
    }

    static String text(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.value(), StandardCharsets.UTF_8);
    }

    static byte[] masked(String value) {
        String before = "\"customer\": \"";
        int from = value.indexOf(before) + before.length(), to = value.indexOf('"', from);
        return (value.substring(0, from) + "***" + value.substring(to)).getBytes(StandardCharsets.UTF_8);
    }

    static long checksum(ConsumerRecord<byte[], byte[]> record, byte[] value) {
        var crc = new CRC32C();
        crc.update(ByteBuffer.allocate(8).putLong(record.timestamp()).array());
        add(crc, record.key());
        add(crc, value);
        for (Header header : record.headers()) {
            if (header.key().equals("mirror.origin")) continue;  // what our flows that change records add
            add(crc, header.key().getBytes());
            add(crc, header.value());
        }
        return crc.getValue();
    }

    static void add(CRC32C crc, byte[] field) {
        crc.update(ByteBuffer.allocate(4).putInt(field == null ? -1 : field.length).array());
        if (field != null) crc.update(field);
    }
}
