package ledgermq;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.FilterSpi;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What RocketMQ's own filter says. Reads lines of an expression and properties (name=value), tabs
 * between them, each percent-encoded; prints true, false, null, error or refused for each.
 */
public final class Evaluate {
  public static void main(String[] args) throws Exception {
    FilterSpi filter = FilterFactory.INSTANCE.get("SQL92");
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(answer(filter, line.split("\t", -1)));
    }
  }

  private static String answer(FilterSpi filter, String[] parts) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < parts.length; i++) {
      int at = parts[i].indexOf('=');
      properties.put(decode(parts[i].substring(0, at)), decode(parts[i].substring(at + 1)));
    }
    Expression expression;
    try {
      expression = filter.compile(decode(parts[0]));
    } catch (Throwable refusal) {
      return "refused";
    }
    try {
      return String.valueOf(expression.evaluate(new Properties(properties)));
    } catch (Exception error) {
      return "error";
    }
  }

  private static String decode(String text) throws Exception {
    return URLDecoder.decode(text.replace("+", "%2B"), "UTF-8");
  }

  private static final class Properties implements EvaluationContext {
    private final Map<String, String> properties;

    Properties(Map<String, String> properties) {
      this.properties = properties;
    }

    @Override
    public Object get(String name) {
      return properties.get(name);
    }

    @Override
    public Map<String, Object> keyValues() {
      return new HashMap<>(properties);
    }
  }
}
