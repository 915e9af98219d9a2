// Prints what Kafka's own classes know about every key: type, default, what values are valid, and how a broker's
// key may be altered. Runs with the jars of Kafka 3.9 (which has no keys of groups) and of 4.3.
// Tab-separated: table, key, type, default, validator, update mode.

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigDefs {
    static void print(String table, ConfigDef keys, Map<?, ?> modes) {
        for (ConfigDef.ConfigKey key : keys.configKeys().values()) {
            if (!key.internalConfig) {
                String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
                Object mode = modes.get(key.name);
                System.out.println(String.join("\t", table, key.name, key.type.toString(), String.valueOf(value),
                    String.valueOf(key.validator), mode == null ? "read-only" : mode.toString()));
            }
        }
    }

    static Class<?> find(String... names) {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException error) {
                continue;
            }
        }
        return null;
    }

    static Map<?, ?> modes() throws Exception {
        Class<?> java = find("org.apache.kafka.server.config.DynamicBrokerConfig");
        Class<?> owner = java != null ? java : find("kafka.server.DynamicBrokerConfig$");
        Object module = java != null ? null : owner.getField("MODULE$").get(null);
        return (Map<?, ?>) owner.getMethod("dynamicConfigUpdateModes").invoke(module);
    }

    public static void main(String[] arguments) throws Exception {
        print("topic", LogConfig.configDefCopy(), new HashMap<>());
        Class<?> groups = find("org.apache.kafka.coordinator.group.GroupConfig");
        if (groups != null) {
            try {
                print("group", (ConfigDef) groups.getField("CONFIG_DEF").get(null), new HashMap<>());
            } catch (NoSuchFieldException error) {
                print("group", (ConfigDef) groups.getMethod("configDef").invoke(null), new HashMap<>());
            }
        }
        Map<?, ?> modes = modes();
        print("broker", kafka.server.KafkaConfig.configDef(), modes);
    }
}
