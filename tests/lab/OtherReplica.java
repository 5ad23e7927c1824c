import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.replica.ClientMetadata;
import org.apache.kafka.common.replica.PartitionView;
import org.apache.kafka.common.replica.ReplicaSelector;
import org.apache.kafka.common.replica.ReplicaView;

/** Names every reader a replica that is not the leader to read from (KIP-392), once there is one in sync. */
public class OtherReplica implements ReplicaSelector {
    @Override
    public Optional<ReplicaView> select(TopicPartition partition, ClientMetadata client, PartitionView view) {
        return view.replicas().stream().filter(each -> !each.equals(view.leader())).findFirst();
    }
}
