// Reads properties files, one a line in hexadecimal, and prints what Java takes them for: KEY=VALUE;... with
// keys in order and all characters in hexadecimal, or "refused".

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

public class PropertiesDump {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(read(HexFormat.of().parseHex(line)));
        }
    }

    static String read(byte[] file) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(file));
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        StringBuilder text = new StringBuilder();
        for (Map.Entry<Object, Object> one : new TreeMap<>(properties).entrySet()) {
            text.append(hex(one.getKey())).append("=").append(hex(one.getValue())).append(";");
        }
        return text.toString();
    }

    static String hex(Object value) {
        StringBuilder text = new StringBuilder();
        for (char one : ((String) value).toCharArray()) {
            text.append(HexFormat.of().toHexDigits(one));
        }
        return text.toString();
    }
}
