import java.io.File;
import java.io.FileOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS with one DataNode, a ResourceManager and NodeManagers, all on loopback. In: a folder, the number of
 * NodeManagers, the megabytes of each. Out: `core-site.xml` and `yarn-site.xml` in `FOLDER/conf`, then the line `ready`.
 * The cluster ends with its standard input.
 */
public class HadoopCluster {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        int nodes = Integer.parseInt(args[1]);
        Configuration hdfs = new HdfsConfiguration();
        hdfs.set("dfs.permissions.enabled", "false");
        MiniDFSCluster files = new MiniDFSCluster.Builder(hdfs, new File(folder, "hdfs")).numDataNodes(1).build();
        files.waitActive();

        YarnConfiguration yarn = new YarnConfiguration();
        yarn.set("fs.defaultFS", files.getFileSystem().getUri().toString());
        yarn.setInt("yarn.nodemanager.resource.memory-mb", Integer.parseInt(args[2]));
        yarn.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
        yarn.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        // A small machine has neither the memory that Java reserves nor a tenth of its disk to spare.
        yarn.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        yarn.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        yarn.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100.0");
        // The jar of the minicluster has no capacity-scheduler.xml.
        yarn.set("yarn.scheduler.capacity.root.queues", "default");
        yarn.set("yarn.scheduler.capacity.root.default.capacity", "100");
        yarn.set("yarn.scheduler.capacity.root.default.maximum-capacity", "100");
        yarn.set("yarn.scheduler.capacity.root.default.user-limit-factor", "1");
        yarn.set("yarn.scheduler.capacity.root.default.state", "RUNNING");
        yarn.set("yarn.scheduler.capacity.root.default.acl_submit_applications", "*");
        yarn.set("yarn.scheduler.capacity.root.default.acl_administer_queue", "*");
        yarn.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
        yarn.set("yarn.scheduler.capacity.node-locality-delay", "-1");
        MiniYARNCluster cluster = new MiniYARNCluster("mirror", nodes, 1, 1);
        cluster.init(yarn);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(60000)) {
            throw new IllegalStateException("a NodeManager did not register with the ResourceManager");
        }

        File conf = new File(folder, "conf");
        conf.mkdirs();
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (FileOutputStream out = new FileOutputStream(new File(conf, name))) {
                cluster.getConfig().writeXml(out);
            }
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
