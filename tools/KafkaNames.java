import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the names of the ConfigDef of each class that is given, sorted, under a head of the class without its package. */
public final class KafkaNames {
    public static void main(String[] arguments) throws Exception {
        for (String name : arguments) {
            System.out.println("[" + name.substring(name.lastIndexOf('.') + 1) + "]");
            new TreeSet<>(names(Class.forName(name))).forEach(System.out::println);
        }
    }

    private static Set<String> names(Class<?> owner) throws Exception {
        for (Method method : owner.getDeclaredMethods()) {
            if (method.getReturnType() == ConfigDef.class && method.getParameterCount() == 0) {
                return ((ConfigDef) opened(method).invoke(null)).names();
            }
        }
        for (Field field : owner.getDeclaredFields()) {
            if (field.getType() == ConfigDef.class) {
                return ((ConfigDef) opened(field).get(null)).names();
            }
        }
        // The worker's is made by a method of the surroundings, and its object holds the definition.
        Method made = owner.getDeclaredMethod("config", Class.forName("org.apache.kafka.connect.runtime.distributed.Crypto"));
        Object system = Class.forName("org.apache.kafka.connect.runtime.distributed.Crypto").getField("SYSTEM").get(null);
        return ((ConfigDef) opened(made).invoke(null, system)).names();
    }

    private static <T extends AccessibleObject> T opened(T member) {
        member.setAccessible(true);
        return member;
    }
}
