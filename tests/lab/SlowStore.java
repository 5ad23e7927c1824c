import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Tiered storage (KIP-405) in the folder `dir`. While a file `slow` is in it, a read takes longer than brokers wait. */
public class SlowStore implements RemoteStorageManager {
    private static final long LONGER_THAN_BROKERS_WAIT_MS = 1500;
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Paths.get(String.valueOf(configs.get("dir")));
        folder.toFile().mkdirs();
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            keep(data.logSegment(), segment, "log");
            keep(data.offsetIndex(), segment, IndexType.OFFSET.name());
            keep(data.timeIndex(), segment, IndexType.TIMESTAMP.name());
            keep(data.producerSnapshotIndex(), segment, IndexType.PRODUCER_SNAPSHOT.name());
            if (data.transactionIndex().isPresent()) {
                keep(data.transactionIndex().get(), segment, IndexType.TRANSACTION.name());
            }
            ByteBuffer epochs = data.leaderEpochIndex().duplicate();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(file(segment, IndexType.LEADER_EPOCH.name()), bytes);
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
            throws RemoteStorageException {
        try {
            if (Files.exists(folder.resolve("slow"))) {
                Thread.sleep(LONGER_THAN_BROKERS_WAIT_MS);
            }
            byte[] all = Files.readAllBytes(file(segment, "log"));
            int end = (int) Math.min((long) all.length, (long) last + 1);
            return new ByteArrayInputStream(all, start, Math.max(0, end - start));
        } catch (IOException | InterruptedException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        Path index = file(segment, type.name());
        if (!Files.exists(index)) {
            throw new RemoteResourceNotFoundException("there is no " + index);
        }
        try {
            return new ByteArrayInputStream(Files.readAllBytes(index));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
    }

    @Override
    public void close() {
    }

    private void keep(Path from, RemoteLogSegmentMetadata segment, String kind) throws IOException {
        Files.copy(from, file(segment, kind), StandardCopyOption.REPLACE_EXISTING);
    }

    private Path file(RemoteLogSegmentMetadata segment, String kind) {
        var id = segment.remoteLogSegmentId();
        return folder.resolve(id.topicIdPartition().topicPartition() + "_" + id.id() + "." + kind);
    }
}
