import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Asks what MirrorMaker's client of every release can be asked, also of Kafka 2.6. Arguments: bootstrap servers, alias
 * of the source, group. Prints a line for each answer, its words parted by tabs.
 */
public class RemoteClusters {
    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8.name()));
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", args[0]);
        for (String alias : RemoteClusterUtils.upstreamClusters(properties)) print("upstream", alias);
        for (String topic : RemoteClusterUtils.heartbeatTopics(properties)) print("heartbeats", topic);
        for (String topic : RemoteClusterUtils.checkpointTopics(properties)) print("checkpoints", topic);
        print("hops", "" + RemoteClusterUtils.replicationHops(properties, args[1]));
        Map<TopicPartition, OffsetAndMetadata> offsets =
            RemoteClusterUtils.translateOffsets(properties, args[1], args[2], Duration.ofSeconds(60));
        offsets.forEach((at, found) -> print("offset", at.topic(), "" + at.partition(), "" + found.offset()));
    }

    private static void print(String... words) {
        System.out.println(String.join("\t", words));
    }
}
