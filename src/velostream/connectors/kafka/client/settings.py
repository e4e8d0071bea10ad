"""The broker settings of a statement, for each of the two Kafka clients.

Python's client (librdkafka) queries topics, offsets and samples; Java's, inside Spark, reads and writes the
records. They have the same settings under partly different names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from velostream.connectors.kafka.options import KafkaOptions

_SHARED = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
_PYTHON = (
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_JAVA = (
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.key.password",
    "sasl.jaas.config",
)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_CALLBACK = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def python_settings(options: KafkaOptions) -> dict[str, str]:
    """Settings for confluent-kafka."""
    settings = _given(options, (*_SHARED, *_PYTHON))
    settings["ssl.endpoint.identification.algorithm"] = (
        options.ssl_endpoint_identification_algorithm or "none"
    )
    if options.sasl_mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.method"] = "oidc"
    if options.sasl_jaas_config:
        written = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', options.sasl_jaas_config))
        settings |= {
            f"sasl.{name}": re.sub(r"\\(.)", r"\1", written[name])
            for name in ("username", "password")
            if name in written
        }
    if options.ssl_truststore_location and not options.ssl_ca_location:
        if options.ssl_truststore_type != "PEM":
            raise SourceConfigError(
                "a Java trust store alone is not enough: a part of Velostream reads PEM files only",
                hint='give the authorities as a PEM file, too: "ssl.ca.location"',
            )
        settings["ssl.ca.location"] = options.ssl_truststore_location
    if options.ssl_keystore_location and not options.ssl_key_location:
        if options.ssl_keystore_type != "PKCS12":
            raise SourceConfigError(
                "a Java key store alone is not enough: a part of Velostream reads PEM and PKCS12 files only",
                hint='give "ssl.certificate.location" and "ssl.key.location", or a store of type PKCS12',
            )
        settings["ssl.keystore.location"] = options.ssl_keystore_location
        settings["ssl.keystore.password"] = options.ssl_keystore_password or ""
    return settings


def java_settings(options: KafkaOptions) -> dict[str, str]:
    """Settings for the client inside Spark, as options of Spark's reader and writer."""
    settings = _given(options, (*_SHARED, *_JAVA))
    settings["ssl.endpoint.identification.algorithm"] = options.ssl_endpoint_identification_algorithm
    if options.ssl_ca_location and not options.ssl_truststore_location:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options.ssl_ca_location}
    if options.ssl_key_location and options.ssl_certificate_location and not options.ssl_keystore_location:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": _content(options.ssl_key_location),
            "ssl.keystore.certificate.chain": _content(options.ssl_certificate_location),
        }
    if options.sasl_mechanism and not options.sasl_jaas_config:
        settings["sasl.jaas.config"] = _jaas(options)
    if options.sasl_mechanism == "OAUTHBEARER":
        settings["sasl.login.callback.handler.class"] = _OAUTH_CALLBACK
    return {f"kafka.{name}": value for name, value in settings.items()}


def _given(options: KafkaOptions, names: tuple[str, ...]) -> dict[str, str]:
    said = {
        (field.alias or name): value
        for name, field in type(options).model_fields.items()
        if (value := getattr(options, name)) is not None
    }
    return {name: str(said[name]) for name in names if name in said}


def _jaas(options: KafkaOptions) -> str:
    """The JAAS login module for Java, from user and password."""
    mechanism = options.sasl_mechanism or ""
    parts = {"username": options.sasl_username, "password": options.sasl_password}
    if mechanism == "OAUTHBEARER":
        parts = {
            "clientId": options.sasl_oauthbearer_client_id,
            "clientSecret": options.sasl_oauthbearer_client_secret,
            "scope": options.sasl_oauthbearer_scope,
        }
    said = " ".join(f"{name}={_quoted(value)}" for name, value in parts.items() if value is not None)
    return f"{_MODULES[mechanism]} required {said};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise SourceConfigError(f'"{path}" cannot be read as a PEM file: {exc}') from exc
