// Prints what Kafka's own classes know about every key and tell no client: what values are valid, and how a
// broker's key may be altered. Tab-separated: table, key, default, validator; or "update", key, mode.

import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigDefs {
    static void print(String table, ConfigDef keys) {
        for (ConfigDef.ConfigKey key : keys.configKeys().values()) {
            if (!key.internalConfig) {
                String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
                System.out.println(table + "\t" + key.name + "\t" + value + "\t" + key.validator);
            }
        }
    }

    public static void main(String[] arguments) {
        print("topic", LogConfig.configDefCopy());
        print("broker", kafka.server.KafkaConfig.configDef());
        print("group", GroupConfig.CONFIG_DEF);
        for (Map.Entry<String, String> update : DynamicBrokerConfig.dynamicConfigUpdateModes().entrySet()) {
            System.out.println("update\t" + update.getKey() + "\t" + update.getValue());
        }
    }
}
