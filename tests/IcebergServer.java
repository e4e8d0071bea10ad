import com.fasterxml.jackson.annotation.JsonAutoDetect;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.OAuthTokenResponse;
import org.apache.iceberg.types.Types;

/**
 * A REST catalogue for the tests, of the handlers that Iceberg itself has for servers: on a port of loopback, for a
 * warehouse, until its input ends. Who asks shows the token, or gets it for "id:secret".
 *
 * <p>GET /read?PLACE gives the rows of a table, a line each, as Iceberg's own reader finds them: the place is a file of
 * metadata, or the table's name here. POST /next/STATUS: the next commit is made, and answered with this status.
 */
public class IcebergServer {
  private static final String TOKEN = "known-to-the-writer";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final InMemoryCatalog CATALOG = new InMemoryCatalog();
  private static volatile int next = 0;

  public static void main(String[] arguments) throws Exception {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(JSON);
    CATALOG.initialize("tests", Map.of("warehouse", arguments[1]));
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", IcebergServer::answer);
    server.start();
    System.out.println("started");
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  private static void answer(HttpExchange exchange) {
    try (exchange) {
      try {
        handle(exchange);
      } catch (AlreadyExistsException | CommitFailedException e) {
        fail(exchange, 409, e);
      } catch (NoSuchTableException | NoSuchNamespaceException e) {
        fail(exchange, 404, e);
      } catch (IllegalArgumentException e) {
        fail(exchange, 400, e);
      } catch (Exception e) {
        e.printStackTrace();
        fail(exchange, 500, e);
      }
    } catch (Exception e) {
      e.printStackTrace();
    }
  }

  private static void handle(HttpExchange exchange) throws Exception {
    var path = exchange.getRequestURI().getPath().split("/");
    var asked = exchange.getRequestMethod() + " " + path[path.length > 1 ? 1 : 0];
    if (asked.equals("GET read")) {
      send(exchange, 200, rows(URLDecoder.decode(exchange.getRequestURI().getRawQuery(), StandardCharsets.UTF_8)));
      return;
    }
    if (asked.equals("POST next")) {
      next = Integer.parseInt(path[2]);
      send(exchange, 200, "{}");
      return;
    }
    var body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    var place = String.join("/", path).substring("/v1/".length());
    if (place.equals("oauth/tokens")) {
      if (!body.contains("client_secret=secret")) {
        send(exchange, 401, "{\"error\": \"invalid_client\"}");
      } else {
        reply(exchange, OAuthTokenResponse.builder().withToken(TOKEN).withTokenType("bearer").build());
      }
      return;
    }
    if (!("Bearer " + TOKEN).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
      fail(exchange, 401, new IllegalStateException("who asks is not known"));
      return;
    }
    if (place.equals("config")) {
      reply(exchange, ConfigResponse.builder().build());
      return;
    }
    var within = path.length > 3 ? Namespace.of(path[3].split("\u001f")) : Namespace.empty();
    var table = path.length > 5 ? TableIdentifier.of(within, path[5]) : null;
    switch (exchange.getRequestMethod() + " " + Math.min(path.length, 6)) {
      case "GET 3" -> reply(exchange, CatalogHandlers.listNamespaces(CATALOG, within));
      case "POST 3" ->
          reply(exchange, CatalogHandlers.createNamespace(CATALOG, JSON.readValue(body, CreateNamespaceRequest.class)));
      case "GET 4", "HEAD 4" -> reply(exchange, CatalogHandlers.loadNamespace(CATALOG, within));
      case "GET 5" -> reply(exchange, CatalogHandlers.listTables(CATALOG, within));
      case "POST 5" -> {
        var wanted = JSON.readValue(body, CreateTableRequest.class);
        reply(
            exchange,
            wanted.stageCreate()
                ? CatalogHandlers.stageTableCreate(CATALOG, within, wanted)
                : CatalogHandlers.createTable(CATALOG, within, wanted));
      }
      case "GET 6", "HEAD 6" -> reply(exchange, CatalogHandlers.loadTable(CATALOG, table));
      case "DELETE 6" -> {
        CatalogHandlers.dropTable(CATALOG, table);
        exchange.sendResponseHeaders(204, -1);
      }
      case "POST 6" -> {
        var made = CatalogHandlers.updateTable(CATALOG, table, JSON.readValue(body, UpdateTableRequest.class));
        var status = next;
        next = 0;
        if (status == 0) {
          reply(exchange, made);
        } else {
          fail(exchange, status, new IllegalStateException("the answer is lost"));
        }
      }
      default -> fail(exchange, 404, new IllegalStateException("no such request"));
    }
  }

  private static String rows(String place) throws Exception {
    var files = new HadoopFileIO(new Configuration());
    var operations =
        place.contains("/")
            ? new StaticTableOperations(place, files)
            : new StaticTableOperations(
                ((BaseTable) CATALOG.loadTable(TableIdentifier.parse(place))).operations().current(), files);
    Table table = new BaseTable(operations, "read");
    var found = new StringBuilder();
    try (var records = IcebergGenerics.read(table).build()) {
      for (var record : records) {
        var row = JSON.createObjectNode();
        for (Types.NestedField field : table.schema().columns()) {
          var value = record.getField(field.name());
          row.put(field.name(), value == null ? null : value.toString());
        }
        found.append(row).append('\n');
      }
    }
    return found.toString();
  }

  private static void reply(HttpExchange exchange, Object value) throws Exception {
    send(exchange, 200, JSON.writeValueAsString(value));
  }

  private static void fail(HttpExchange exchange, int status, Exception e) throws Exception {
    var told = ErrorResponse.builder().responseCode(status).withType(e.getClass().getSimpleName());
    send(exchange, status, JSON.writeValueAsString(told.withMessage(String.valueOf(e.getMessage())).build()));
  }

  private static void send(HttpExchange exchange, int status, String text) throws Exception {
    var bytes = text.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().add("Content-Type", "application/json");
    var without = exchange.getRequestMethod().equals("HEAD");
    exchange.sendResponseHeaders(status, without ? -1 : bytes.length);
    if (!without) {
      exchange.getResponseBody().write(bytes);
    }
  }
}
