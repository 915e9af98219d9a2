// Whether a broker's configuration is one that Kafka starts with, as far as that is decided by its values alone.
// Input: a line per configuration, KEY<tab>VALUE<tab>KEY<tab>VALUE..., with \\uXXXX for what is not plain ASCII.
// Output: a line for each, "answer<tab>" and nothing if it is fine, else why not; other lines are for people.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.storage.internals.log.LogConfig;

public class Starts {
    static final Pattern ESCAPED = Pattern.compile("\\\\u([0-9a-f]{4})");

    static String plain(String text) {
        return ESCAPED.matcher(text).replaceAll(
            match -> java.util.regex.Matcher.quoteReplacement(
                String.valueOf((char) Integer.parseInt(match.group(1), 16))));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] cells = line.split("\t", -1);
            Properties properties = new Properties();
            for (int cell = 0; cell + 1 < cells.length; cell += 2) {
                properties.setProperty(cells[cell], plain(cells[cell + 1]));
            }
            String answer = "";
            try {
                kafka.server.KafkaConfig config = kafka.server.KafkaConfig.fromProps(properties);
                LogConfig.validateBrokerLogConfigValues(config.extractLogConfigMap(), false);
                new LogConfig(config.extractLogConfigMap());
            } catch (Throwable error) {
                answer = error.toString().replaceAll("[\n\r]", " ");
            }
            System.out.println("answer\t" + answer);
        }
    }
}
