// Prints the default of every key of topics and brokers that this Kafka's own classes have. Tab-separated: table,
// key, default. (Kafka 3.9 has no keys of groups.)

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KeyDefaults {
    static void print(String table, ConfigDef keys) {
        for (ConfigDef.ConfigKey key : keys.configKeys().values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            System.out.println(table + "\t" + key.name + "\t" + value);
        }
    }

    public static void main(String[] arguments) {
        print("topic", LogConfig.configDefCopy());
        print("broker", kafka.server.KafkaConfig.configDef());
    }
}
