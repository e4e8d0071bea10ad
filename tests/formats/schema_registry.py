"""A schema registry of the tests' own: ids over all subjects, versions, references, compatibility, errors."""

from __future__ import annotations

import base64
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """What Confluent's registry does for the requests that clients send, after its documentation."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict] = {}
        self.subjects: dict[str, list[int]] = {}
        self.level = "BACKWARD"
        self.requests: list[str] = []
        self.credentials: tuple[str, str] | None = None
        self.failing: int | None = None
        """An HTTP status that every request gets."""
        self.garbage: bytes | None = None
        self._lock = threading.Lock()

    def add(self, subject: str, schema: object, kind: str = "AVRO", references=()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        status, answer = self.register(subject, body)
        assert status == 200, answer
        return answer["id"]

    def register(self, subject: str, body: dict):
        kind = body.get("schemaType", "AVRO")
        entry = {"schema": body["schema"], "schemaType": kind, "references": body.get("references") or []}
        if kind == "AVRO":
            try:
                json.loads(body["schema"])
            except ValueError:
                return 422, {"error_code": 42201, "message": "Invalid schema"}
        with self._lock:
            found = next((n for n, known in self.schemas.items() if known == entry), None)
            versions = self.subjects.setdefault(subject, [])
            if found is not None and found in versions:
                return 200, {"id": found}
            if versions and not self.compatible(self.schemas[versions[-1]], entry):
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            if found is None:
                found = len(self.schemas) + 1
                self.schemas[found] = entry
            versions.append(found)
        return 200, {"id": found}

    def compatible(self, old: dict, new: dict) -> bool:
        """BACKWARD for Avro records: a new field has a default, and a type stays."""
        if self.level == "NONE" or new["schemaType"] != "AVRO":
            return True
        before = {f["name"]: f for f in json.loads(old["schema"])["fields"]}
        after = json.loads(new["schema"])["fields"]
        return all("default" in f if f["name"] not in before else True for f in after)

    def answer(self, method: str, path: str, body: dict | None):
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"] and len(parts) == 3:
            known = self.schemas.get(int(parts[2]))
            return (
                (200, _told(known)) if known else (404, {"error_code": 40403, "message": "Schema not found"})
            )
        if parts[0] == "subjects" and parts[2:] == ["versions"] and method == "POST":
            return self.register(parts[1], body or {})
        if parts[0] == "subjects" and len(parts) >= 3 and parts[2] == "versions":
            versions = self.subjects.get(parts[1])
            if not versions:
                return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
            if len(parts) == 3:
                return 200, list(range(1, len(versions) + 1))
            number = len(versions) if parts[3] == "latest" else int(parts[3])
            if not 1 <= number <= len(versions):
                return 404, {"error_code": 40402, "message": f"Version {number} not found."}
            found = versions[number - 1]
            return 200, {"subject": parts[1], "version": number, "id": found, **_told(self.schemas[found])}
        if parts[0] == "config":
            if method == "PUT":
                self.level = (body or {})["compatibility"]
                return 200, {"compatibility": self.level}
            return 200, {"compatibilityLevel": self.level}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _told(known: dict) -> dict:
    told = {"schema": known["schema"]}
    if known["schemaType"] != "AVRO":
        told["schemaType"] = known["schemaType"]
    if known["references"]:
        told["references"] = known["references"]
    return told


@contextmanager
def running(registry: SchemaRegistry):
    """Its URL, as long as it runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            status, answer = 200, None
            if registry.credentials is not None:
                wanted = base64.b64encode(":".join(registry.credentials).encode()).decode()
                if self.headers.get("Authorization") != f"Basic {wanted}":
                    status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
            if registry.failing is not None:
                status, answer = registry.failing, {"error_code": registry.failing, "message": "down"}
            if answer is None:
                status, answer = registry.answer(self.command, self.path, json.loads(raw) if raw else None)
            data = registry.garbage if registry.garbage is not None else json.dumps(answer).encode()
            self.send_response(status)
            if re.fullmatch(r"3\d\d", str(status)):
                self.send_header("Location", "file:///etc/passwd")
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
