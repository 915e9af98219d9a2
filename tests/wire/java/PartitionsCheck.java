import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.atomic.AtomicBoolean;
import kafka.coordinator.transaction.TransactionStateManager;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupCoordinatorService;
import org.apache.kafka.coordinator.share.ShareCoordinatorService;
import org.apache.kafka.server.share.SharePartitionKey;
import sun.misc.Unsafe;

/**
 * Prints which partition Kafka's own classes choose for each key that comes in base64, of as many as the
 * argument says: of the group, the transactional id, the share partition `key:<uuid>:7`, and the record's key.
 * Services are made without their constructors; only the number of partitions is set.
 */
public class PartitionsCheck {
    static Object made(Class<?> type, int partitions) throws Exception {
        Field theUnsafe = Unsafe.class.getDeclaredField("theUnsafe");
        theUnsafe.setAccessible(true);
        Object made = ((Unsafe) theUnsafe.get(null)).allocateInstance(type);
        for (Field field : type.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                if (field.getName().equals("numPartitions") || field.getName().equals("transactionTopicPartitionCount")) {
                    field.setInt(made, partitions);
                } else if (field.getType() == AtomicBoolean.class) {
                    field.set(made, new AtomicBoolean(true));
                }
            }
        }
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[0]);
        Uuid topic = new Uuid(0x0123456789abcdefL, 0x7654321001234567L);
        GroupCoordinatorService groups = (GroupCoordinatorService) made(GroupCoordinatorService.class, partitions);
        ShareCoordinatorService shares = (ShareCoordinatorService) made(ShareCoordinatorService.class, partitions);
        TransactionStateManager transactions =
            (TransactionStateManager) made(TransactionStateManager.class, partitions);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] bytes = Base64.getDecoder().decode(line);
            String key = new String(bytes, StandardCharsets.UTF_8);
            SharePartitionKey share = SharePartitionKey.getInstance(key, topic, 7);
            System.out.println(
                groups.partitionFor(key)
                    + " " + transactions.partitionFor(key)
                    + " " + shares.partitionFor(share)
                    + " " + BuiltInPartitioner.partitionForKey(bytes, partitions)
                    + " " + share.asCoordinatorKey().hashCode()
                    + " " + Utils.murmur2(bytes));
        }
    }
}
