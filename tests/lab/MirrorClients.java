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

/** Asks MirrorMaker's own clients: bootstrap servers, alias of the source, groups in; a line for each answer out. */
public class MirrorClients {
    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8));
        Map<String, Object> properties = Map.of("bootstrap.servers", args[0]);
        List<String> groups = Arrays.asList(args).subList(2, args.length);
        Duration patience = Duration.ofSeconds(30);
        try (MirrorClient client = new MirrorClient(properties)) {
            for (String topic : client.checkpointTopics()) System.out.println("checkpoints\t" + topic);
            for (String topic : client.remoteTopics(args[1])) System.out.println("remote topic\t" + topic);
            for (String group : groups) {
                print("remoteConsumerOffsets", group, client.remoteConsumerOffsets(group, args[1], patience));
                print("translateOffsets", group,
                    RemoteClusterUtils.translateOffsets(properties, args[1], group, patience));
            }
        }
    }

    private static void print(String asked, String group, Map<TopicPartition, OffsetAndMetadata> offsets) {
        offsets.forEach((at, found) -> System.out.println(String.join("\t", asked, group, at.topic(),
            "" + at.partition(), "" + found.offset(), found.metadata())));
    }
}
