import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.TreeMap;

import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * Places replicas as Kafka does. A line in: brokers ("1:a,2:b", or "1,2" without racks), partitions, replication
 * factor, start index, first partition. A line out: the replicas ("0=1,2;1=2,1").
 */
public class PlacementCheck {
    public static void main(String[] arguments) {
        Scanner input = new Scanner(System.in);
        while (input.hasNext()) {
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (String broker : input.next().split(",")) {
                String[] parts = broker.split(":");
                Optional<String> rack = parts.length > 1 ? Optional.of(parts[1]) : Optional.empty();
                brokers.add(new BrokerMetadata(Integer.parseInt(parts[0]), rack));
            }
            Map<Integer, List<Integer>> placed = new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                brokers, input.nextInt(), input.nextInt(), input.nextInt(), input.nextInt()));
            List<String> lines = new ArrayList<>();
            placed.forEach((partition, replicas) ->
                lines.add(partition + "=" + replicas.toString().replaceAll("[\\[\\] ]", "")));
            System.out.println(String.join(";", lines));
        }
    }
}
