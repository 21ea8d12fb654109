#!/usr/bin/env python3
"""Metrics by OTLP/HTTP, taken apart with OpenTelemetry's own messages: names are those of `/metrics`, counters never shrink, buckets are right; a
collector that is slow, away or refuses is told of once, and costs no memory. Over HTTPS only one is asked whose certificate is trusted and names it.

    otlp.py BINARY"""

import http.server
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from authority import openssl
from driver.broker import Broker
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

INTERVAL = 0.2
SECRET = "s3cret key"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent. `mood`: how it answers."""

    daemon_threads = True

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*map(str, certificate))
            # Each connection shakes hands in a thread of its own.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.requests, self.mood = [], "take"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Who gives up a request, or does not trust us, is part of the test."""

    def wait_for(self, count, seconds=10):
        until, first = time.monotonic() + seconds, len(self.requests)
        while len(self.requests) < first + count:
            assert time.monotonic() < until, f"{len(self.requests) - first} of {count} requests came"
            time.sleep(0.02)
        return self.requests[first:]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        server = self.server
        if server.mood == "hang":
            time.sleep(3)
        response = ExportMetricsServiceResponse()
        if server.mood == "part":
            response.partial_success.rejected_data_points = 3
            response.partial_success.error_message = "too old"
        else:
            server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, ExportMetricsServiceRequest.FromString(body)))
        payload = response.SerializeToString()
        self.send_response(503 if server.mood == "refuse" else 200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def equal(what, found, wanted):
    assert found == wanted, f"{what}: {found!r}, not {wanted!r}"


def metrics_of(request):
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    equal("scope", of_scope.scope.name, "mainstem")
    return {metric.name: metric for metric in of_scope.metrics}


def labels(point):
    return tuple(sorted((one.key, one.value.string_value) for one in point.attributes))


def page(broker):
    """Types and samples of `/metrics`."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/metrics").read().decode()
    types, samples = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("#"):
            name, inside, value = re.fullmatch(r"([a-z0-9_]+)(?:\{(.*)\})? (\S+)", line).groups()
            found = tuple(sorted(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', inside or "")))
            samples[name, found] = float(value)
    return types, samples


def names_and_kinds_are_those_of_the_page(broker, collector):
    before, _ = page(broker)
    path, headers, request = collector.wait_for(2)[-1]
    after, _ = page(broker)
    equal("path", path, "/base/v1/metrics")
    equal("content type", headers["content-type"], "application/x-protobuf")
    equal("the header that is a secret", headers["api-key"], SECRET)
    about = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    equal("service", (about["service.name"], about["service.instance.id"], about["deployment.environment"]), ("broker", "one", "test"))
    found = metrics_of(request)
    # Labels whose samples come and go may have made a difference meanwhile.
    missing = {name for name in before if name in after} - set(found)
    equal("metrics that are not exported", missing, set())
    equal("metrics that are not on the page", set(found) - set(before) - set(after), set())
    kinds = {"sum": "counter", "gauge": "gauge", "histogram": "histogram"}
    for name, metric in found.items():
        equal(f"kind of {name}", kinds[metric.WhichOneof("data")], (after | before)[name])
        if metric.WhichOneof("data") == "sum":
            assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE, name
    for name, metric in found.items():
        assert metric.unit in ("", "s", "By") and (metric.unit != "s" or "seconds" in name), (name, metric.unit)


def values_are_those_of_the_page(broker, collector):
    """While nothing is done values of an export lie between those of the page before and after it."""
    _, low = page(broker)
    request = collector.wait_for(2)[-1][2]
    _, high = page(broker)
    compared = 0
    for name, metric in metrics_of(request).items():
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            if kind == "histogram":
                equal(f"buckets of {name}", len(point.bucket_counts), len(point.explicit_bounds) + 1)
                equal(f"count of {name}", sum(point.bucket_counts), point.count)
                assert list(point.explicit_bounds) == sorted(point.explicit_bounds), name
                below = 0
                for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts):
                    below += count
                    place = next(place for place in low if place[0] == f"{name}_bucket" and float(dict(place[1])["le"]) == bound
                                 and tuple(one for one in place[1] if one[0] != "le") == labels(point))
                    assert low[place] <= below <= high[place], (place, low[place], below, high[place])
                    compared += 1
                place = (f"{name}_sum", labels(point))
                assert low[place] <= point.sum <= high[place], place
            elif kind == "sum" and (name, labels(point)) in low:
                value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                assert low[name, labels(point)] <= value <= high[name, labels(point)], (name, value)
                assert 0 < point.start_time_unix_nano < point.time_unix_nano, name
                compared += 1
    assert compared > 150, compared


def counters_never_shrink(requests):
    last, grown = {}, set()
    for _, _, request in requests:
        for name, metric in metrics_of(request).items():
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points if kind != "gauge" else ():
                value = point.count if kind == "histogram" else point.as_int or point.as_double
                before = last.get((name, labels(point)), 0)
                assert value >= before, f"{name} {labels(point)} went from {before} to {value}"
                if value > before:
                    grown.add(name)
                last[name, labels(point)] = value
    assert "mainstem_kafka_request_duration_seconds" in grown and "mainstem_otlp_exports_total" in grown, sorted(grown)


def said(broker, text):
    return "\n".join(broker.log_lines()).count(text)


def wait_until(what, test, seconds=10):
    until = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def resident(broker):
    """Bytes of memory of its process."""
    line = next(line for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def produce(broker):
    subprocess.run(["kcat", "-b", broker.bootstrap, "-q", "-P", "-t", "orders"], input=b"a record\n" * 500, check=True, timeout=30)


def failures(broker):
    return page(broker)[1]["mainstem_otlp_export_failures_total", ()]


def a_collector_in_trouble_is_told_of_once(broker, collector):
    for mood, reason in (("part", "3 values are not taken: too old"), ("refuse", "it answers 503"), ("hang", "it takes too long")):
        before, memory = failures(broker), resident(broker)
        collector.mood = mood
        wait_until(f"failures while {mood}", lambda: failures(broker) >= before + 3)
        equal(f"lines while {mood}", said(broker, reason), 1)
        assert resident(broker) < memory + (32 << 20), f"{memory} became {resident(broker)}"
        collector.mood = "take"
        collector.wait_for(1)
        wait_until("the end of the trouble", lambda: said(broker, "metrics are exported again") >= 1)
    wait_until("each end of a trouble is told", lambda: said(broker, "metrics are exported again") == 3)
    equal("the secret in the log", said(broker, SECRET) + said(broker, "s3cret"), 0)
    config = urllib.request.urlopen(f"http://127.0.0.1:{broker.admin}/v1/config?limit=1000&search=otel").read().decode()
    assert "otel.exporter.otlp.endpoint" in config and "s3cret" not in config


def last_values_come_at_the_end(broker, collector):
    count = len(collector.requests)
    status = broker.end(signal.SIGTERM)
    equal("status", status, 0)
    assert len(collector.requests) > count, "nothing was exported at the end"


def certificates(folder):
    """An authority, and a certificate by it for 127.0.0.1: the authority's file, the certificate's and its key's."""
    authority, key, request, certificate = (Path(folder) / name for name in ("authority.pem", "key.pem", "request.pem", "certificate.pem"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", f"{folder}/authority.key", "-out", authority, "-days", 2, "-subj", "/CN=authority")
    openssl("req", *new, "-keyout", key, "-out", request, "-subj", "/CN=collector")
    extensions = Path(folder) / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", f"{folder}/authority.key", "-days", 2, "-extfile", extensions, "-out", certificate)
    return authority, certificate, key


def over_https(binary, scratch):
    """With a header from the environment; who is not trusted, or is somebody else by name, gets nothing."""
    authority, *certificate = certificates(scratch)
    collector = Collector(certificate)
    os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20" + SECRET.replace(" ", "%20")
    cases = (("trusted", "127.0.0.1", authority, None), ("unknown", "127.0.0.1", None, "certificate"), ("misnamed", "localhost", authority, "certificate"))
    try:
        for name, host, trusted, trouble in cases:
            settings = {"otel.exporter.otlp.endpoint": f"https://{host}:{collector.server_port}", "otel.metric.export.interval": int(INTERVAL * 1000)}
            if trusted:
                settings["otel.exporter.otlp.certificate"] = trusted
            flags = [word for setting, value in settings.items() for word in ("--set", f"{setting}={value}")]
            broker = Broker(binary, f"{scratch}/{name}", flags).start()
            try:
                if trouble:
                    wait_until(f"failures while {name}", lambda: failures(broker) >= 2)
                    lines = [line for line in broker.log_lines() if "metrics are not exported" in line]
                    assert len(lines) == 1 and trouble in lines[0].lower(), lines
                    equal(f"requests while {name}", len(collector.requests), before)
                else:
                    path, headers, _ = collector.wait_for(2)[-1]
                    equal("path and header", (path, headers["authorization"]), ("/v1/metrics", f"Bearer {SECRET}"))
                equal("the secret in the log", said(broker, "s3cret"), 0)
            finally:
                broker.end(signal.SIGTERM)
            before = len(collector.requests)
    finally:
        del os.environ["OTEL_EXPORTER_OTLP_HEADERS"]
        collector.shutdown()


def main():
    binary = sys.argv[1]
    collector = Collector()
    with tempfile.TemporaryDirectory(prefix="mainstem-otlp-") as scratch:
        secret = Path(scratch) / "headers"
        secret.write_text(f"api-key={SECRET.replace(' ', '%20')}\n")
        os.chmod(secret, 0o600)
        settings = {
            "otel.exporter.otlp.endpoint": f"http://127.0.0.1:{collector.server_port}/base",
            "otel.exporter.otlp.headers.file": secret,
            "otel.exporter.otlp.timeout": 500,
            "otel.metric.export.interval": int(INTERVAL * 1000),
            "otel.service.name": "broker",
            "otel.resource.attributes": "service.instance.id=one,deployment.environment=test",
        }
        broker = Broker(binary, f"{scratch}/data", [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]).start()
        try:
            produce(broker)
            names_and_kinds_are_those_of_the_page(broker, collector)
            produce(broker)
            values_are_those_of_the_page(broker, collector)
            counters_never_shrink(collector.requests)
            a_collector_in_trouble_is_told_of_once(broker, collector)
            last_values_come_at_the_end(broker, collector)
        finally:
            broker.end(signal.SIGKILL)
        over_https(binary, scratch)
    print(f"{len(collector.requests)} exports, {len(metrics_of(collector.requests[-1][2]))} metrics")


main()
