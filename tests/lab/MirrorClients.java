import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Asks MirrorMaker's own clients. In: bootstrap servers, aliases (`A,B`), groups; `then` before the next cluster's.
 * Out: a line for each answer, after the line `cluster` with its bootstrap servers.
 */
public class MirrorClients {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8));
        List<String> rest = Arrays.asList(args);
        while (!rest.isEmpty()) {
            int end = rest.contains("then") ? rest.indexOf("then") : rest.size();
            ask(rest.get(0), rest.get(1).split(","), rest.subList(2, end));
            rest = rest.subList(Math.min(end + 1, rest.size()), rest.size());
        }
    }

    private static void ask(String bootstrap, String[] aliases, List<String> groups) throws Exception {
        print("cluster", bootstrap);
        Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap);
        try (MirrorClient client = new MirrorClient(properties)) {
            for (String topic : client.heartbeatTopics()) print("heartbeats", topic);
            for (String topic : client.checkpointTopics()) print("checkpoints", topic);
            for (String alias : client.upstreamClusters()) print("upstream", alias);
            for (String alias : aliases) {
                print("hops", alias, "" + client.replicationHops(alias));
                for (String topic : client.remoteTopics(alias)) print("remote topic", alias, topic);
                // Of a cluster two hops away there are no checkpoints here; asked for them, the client only times out.
                if (!client.checkpointTopics().contains(client.replicationPolicy().checkpointsTopic(alias))) continue;
                for (String group : groups) {
                    print("remoteConsumerOffsets", group, client.remoteConsumerOffsets(group, alias, PATIENCE));
                    print("translateOffsets", group,
                        RemoteClusterUtils.translateOffsets(properties, alias, group, PATIENCE));
                }
            }
        }
    }

    private static void print(String asked, String group, Map<TopicPartition, OffsetAndMetadata> offsets) {
        offsets.forEach((at, found) ->
            print(asked, group, at.topic(), "" + at.partition(), "" + found.offset(), found.metadata()));
    }

    private static void print(String... words) {
        System.out.println(String.join("\t", words));
    }
}
