import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "name version hex", has Kafka's own generated class of that name decode the bytes and encode them
 * again, and answers each with one word: same, absent (no such class or version here), or what went wrong.
 */
public class MessagesCheck {
    static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            out.append(check(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2]))).append('\n');
        }
        System.out.print(out);
    }

    static String check(String name, short version, byte[] bytes) {
        Message message = instance(name);
        if (message == null || version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return "absent";
        }
        try {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return "left " + buffer.remaining() + " bytes of " + name + " v" + version;
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            byte[] theirs = new byte[message.size(cache, version)];
            message.write(new ByteBufferAccessor(ByteBuffer.wrap(theirs)), cache, version);
            return Arrays.equals(bytes, theirs) ? "same" : name + " v" + version + ": " + HexFormat.of().formatHex(theirs);
        } catch (Throwable error) {
            return name + " v" + version + ": " + error;
        }
    }

    static Message instance(String name) {
        for (String place : PLACES) {
            try {
                return (Message) Class.forName(String.format(place, name)).getDeclaredConstructor().newInstance();
            } catch (ReflectiveOperationException error) {
                continue;
            }
        }
        return null;
    }
}
