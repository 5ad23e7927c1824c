import java.io.File;
import java.util.Arrays;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/**
 * A Kerberos key distribution centre. In: a folder, a realm, a TCP port, principals. Out: a keytab for each in the
 * folder (`kafka/localhost` in `kafka-localhost.keytab`), then the line `ready`. Ends with its standard input.
 */
public class KeyCentre {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        SimpleKdcServer centre = new SimpleKdcServer();
        centre.setWorkDir(folder);
        centre.setKdcRealm(args[1]);
        centre.setKdcHost("127.0.0.1");
        centre.setAllowUdp(false);
        centre.setKdcTcpPort(Integer.parseInt(args[2]));
        centre.init();
        for (String principal : Arrays.copyOfRange(args, 3, args.length)) {
            centre.createPrincipal(principal);
            centre.exportPrincipal(principal, new File(folder, principal.replace('/', '-') + ".keytab"));
        }
        centre.start();
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}
