"""Kafka's keys for security, without effect: everybody may connect, and do everything.

`ignored_keys` says what that means. A broker that is told to check rights, or to encrypt, does not start:
nobody shall believe to be protected.
"""

from __future__ import annotations

from kbroker.config import (
    PER_BROKER,
    Form,
    boolean,
    class_name,
    float64,
    int16,
    int32,
    int64,
    key,
    password,
    string,
    table,
    words,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NO_PLUGINS = "there are no plug-ins"
NO_TOKENS = "there are no delegation tokens"
NO_STORED_PASSWORDS = "no password is stored"
ONLY_PLAINTEXT = "only PLAINTEXT listeners are served"
PLAIN_ZOOKEEPER = "TLS is not spoken with ZooKeeper"


@table
class SecurityKeys:
    """Never made; only its keys count."""

    # Everything
    authorizer_class_name: string = key(
        default="",
        choices=("",),
        no_effect="everybody may do everything; a broker that is told otherwise does not start",
        doc="Decides who may do what.",
    )
    super_users: string = key(
        default="", no_effect="everybody may do everything", doc="Who may do everything."
    )
    principal_builder_class: class_name = key(
        default="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        no_effect=NO_PLUGINS,
        doc="Says who a client is.",
    )
    connections_max_reauth_ms: int64 = key(
        default=0, no_effect=ONLY_PLAINTEXT, doc="How long a login lasts; 0 is for ever."
    )
    connection_failed_authentication_delay_ms: int32 = key(
        default=100, at_least=0, no_effect=ONLY_PLAINTEXT, doc="How long a failed login waits for its reply."
    )
    sasl_enabled_mechanisms: words = key(
        update=PER_BROKER, default=("GSSAPI",), no_effect=ONLY_PLAINTEXT, doc="How clients may log in."
    )
    sasl_mechanism_inter_broker_protocol: string = key(
        update=PER_BROKER,
        default="GSSAPI",
        no_effect=ONLY_PLAINTEXT,
        doc="How brokers log in to one another.",
    )
    sasl_jaas_config: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Users and passwords of a listener."
    )
    sasl_server_max_receive_size: int32 = key(
        default=512 << 10, no_effect=ONLY_PLAINTEXT, doc="The largest step of a login."
    )
    ssl_client_auth: string = key(
        update=PER_BROKER,
        default="none",
        choices=("required", "requested", "none"),
        no_effect=ONLY_PLAINTEXT,
        doc="Whether clients must show a certificate.",
    )
    ssl_enabled_protocols: words = key(
        update=PER_BROKER,
        default=("TLSv1.2", "TLSv1.3"),
        no_effect=ONLY_PLAINTEXT,
        doc="Versions of TLS that clients may use.",
    )
    ssl_protocol: string = key(
        update=PER_BROKER, default="TLSv1.3", no_effect=ONLY_PLAINTEXT, doc="The version of TLS."
    )
    ssl_cipher_suites: words = key(
        update=PER_BROKER, default=(), no_effect=ONLY_PLAINTEXT, doc="Its ciphers."
    )
    ssl_endpoint_identification_algorithm: string = key(
        update=PER_BROKER,
        default="https",
        no_effect=ONLY_PLAINTEXT,
        doc="How another broker's certificate is checked.",
    )
    ssl_key_password: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The password of the private key."
    )
    ssl_keystore_location: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The file with the certificate and its key."
    )
    ssl_keystore_password: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The password of that file."
    )
    ssl_keystore_type: string = key(default="JKS", no_effect=ONLY_PLAINTEXT, doc="The format of that file.")
    ssl_keystore_key: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The private key itself, as PEM."
    )
    ssl_keystore_certificate_chain: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The certificate itself, as PEM."
    )
    ssl_truststore_location: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The file with the certificates that are trusted."
    )
    ssl_truststore_password: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The password of that file."
    )
    ssl_truststore_type: string = key(default="JKS", no_effect=ONLY_PLAINTEXT, doc="The format of that file.")
    ssl_truststore_certificates: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Those certificates themselves, as PEM."
    )

    # Logins
    sasl_client_callback_handler_class: class_name | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Gets what a broker needs to log in to another one."
    )
    sasl_server_callback_handler_class: class_name | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Checks what clients log in with."
    )
    sasl_login_callback_handler_class: class_name | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Gets what a login needs."
    )
    sasl_login_class: class_name | None = key(default=None, no_effect=ONLY_PLAINTEXT, doc="Logs in.")
    sasl_login_connect_timeout_ms: int32 | None = key(
        default=None,
        no_effect=ONLY_PLAINTEXT,
        doc="How long connecting to an authentication server may take.",
    )
    sasl_login_read_timeout_ms: int32 | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="How long its reply may take."
    )
    sasl_login_refresh_window_factor: float64 = key(
        update=PER_BROKER,
        default=0.8,
        no_effect=ONLY_PLAINTEXT,
        doc="After what part of a token's life a new one is fetched.",
    )
    sasl_login_refresh_window_jitter: float64 = key(
        update=PER_BROKER, default=0.05, no_effect=ONLY_PLAINTEXT, doc="What chance adds to that."
    )
    sasl_login_refresh_min_period_seconds: int16 = key(
        update=PER_BROKER, default=60, no_effect=ONLY_PLAINTEXT, doc="How long a token is kept at least."
    )
    sasl_login_refresh_buffer_seconds: int16 = key(
        update=PER_BROKER,
        default=300,
        no_effect=ONLY_PLAINTEXT,
        doc="How long before its end a token is replaced at the latest.",
    )
    sasl_login_retry_backoff_ms: int64 = key(
        default=100, no_effect=ONLY_PLAINTEXT, doc="Rest after a login that failed."
    )
    sasl_login_retry_backoff_max_ms: int64 = key(
        default=10_000, no_effect=ONLY_PLAINTEXT, doc="What that rest grows to."
    )
    sasl_mechanism_controller_protocol: string = key(
        default="GSSAPI", no_effect=ONLY_PLAINTEXT, doc="How brokers log in to KRaft controllers."
    )
    sasl_kerberos_service_name: string | None = key(
        update=PER_BROKER, default=None, no_effect=ONLY_PLAINTEXT, doc="The principal that brokers run as."
    )
    sasl_kerberos_kinit_cmd: string = key(
        default="/usr/bin/kinit", no_effect=ONLY_PLAINTEXT, doc="Where `kinit` is."
    )
    sasl_kerberos_ticket_renew_window_factor: float64 = key(
        update=PER_BROKER,
        default=0.8,
        no_effect=ONLY_PLAINTEXT,
        doc="After what part of a ticket's life it is renewed.",
    )
    sasl_kerberos_ticket_renew_jitter: float64 = key(
        update=PER_BROKER, default=0.05, no_effect=ONLY_PLAINTEXT, doc="What chance adds to that."
    )
    sasl_kerberos_min_time_before_relogin: int64 = key(
        update=PER_BROKER,
        default=60_000,
        no_effect=ONLY_PLAINTEXT,
        doc="How long to wait between two attempts.",
    )
    sasl_kerberos_principal_to_local_rules: words = key(
        update=PER_BROKER,
        default=("DEFAULT",),
        no_effect=ONLY_PLAINTEXT,
        doc="How a principal becomes the name of a user.",
    )
    sasl_oauthbearer_token_endpoint_url: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Where tokens are fetched."
    )
    sasl_oauthbearer_scope: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The scope that a token is asked for."
    )
    sasl_oauthbearer_client_credentials_client_id: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The client that a token is asked for."
    )
    sasl_oauthbearer_client_credentials_client_secret: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="That client's secret."
    )
    sasl_oauthbearer_jwt_retriever_class: class_name = key(
        default="org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        no_effect=ONLY_PLAINTEXT,
        doc="Fetches tokens.",
    )
    sasl_oauthbearer_jwt_validator_class: class_name = key(
        default="org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        no_effect=ONLY_PLAINTEXT,
        doc="Checks tokens.",
    )
    sasl_oauthbearer_jwks_endpoint_url: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Where the keys are that tokens are signed with."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int64 = key(
        default=HOUR_MS, no_effect=ONLY_PLAINTEXT, doc="How often those keys are fetched."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int64 = key(
        default=100, no_effect=ONLY_PLAINTEXT, doc="Rest after an attempt to fetch them that failed."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int64 = key(
        default=10_000, no_effect=ONLY_PLAINTEXT, doc="What that rest grows to."
    )
    sasl_oauthbearer_clock_skew_seconds: int32 = key(
        default=30, no_effect=ONLY_PLAINTEXT, doc="How far the clocks of others may differ."
    )
    sasl_oauthbearer_expected_audience: words = key(
        default=(), no_effect=ONLY_PLAINTEXT, doc="For whom tokens must be."
    )
    sasl_oauthbearer_expected_issuer: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Who must have issued a token."
    )
    sasl_oauthbearer_scope_claim_name: string = key(
        default="scope", no_effect=ONLY_PLAINTEXT, doc="The claim of a token that holds its scope."
    )
    sasl_oauthbearer_sub_claim_name: string = key(
        default="sub", no_effect=ONLY_PLAINTEXT, doc="The claim of a token that holds its user."
    )
    sasl_oauthbearer_assertion_algorithm: string = key(
        default="RS256",
        form=Form("(?i:ES256|RS256)", "one of ES256, RS256"),
        no_effect=ONLY_PLAINTEXT,
        doc="How an assertion is signed.",
    )
    sasl_oauthbearer_assertion_claim_aud: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The audience of an assertion."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int32 = key(
        default=300,
        at_least=0,
        at_most=86400,
        no_effect=ONLY_PLAINTEXT,
        doc="How long an assertion is valid.",
    )
    sasl_oauthbearer_assertion_claim_iss: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The issuer of an assertion."
    )
    sasl_oauthbearer_assertion_claim_jti_include: boolean = key(
        default=False, no_effect=ONLY_PLAINTEXT, doc="Give each assertion an id of its own."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int32 = key(
        default=60,
        at_least=0,
        at_most=3600,
        no_effect=ONLY_PLAINTEXT,
        doc="How long before its making an assertion is valid.",
    )
    sasl_oauthbearer_assertion_claim_sub: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The subject of an assertion."
    )
    sasl_oauthbearer_assertion_file: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The file with an assertion."
    )
    sasl_oauthbearer_assertion_private_key_file: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The file with the key that signs assertions."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: password | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="The passphrase of that key."
    )
    sasl_oauthbearer_assertion_template_file: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="A file with claims for each assertion."
    )

    # TLS
    ssl_allow_dn_changes: boolean = key(
        default=False,
        no_effect=ONLY_PLAINTEXT,
        doc="Let a keystore that is altered later have another distinguished name.",
    )
    ssl_allow_san_changes: boolean = key(
        default=False, no_effect=ONLY_PLAINTEXT, doc="Let it have other alternative names."
    )
    ssl_engine_factory_class: class_name | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Makes the engine of TLS."
    )
    ssl_keymanager_algorithm: string = key(
        update=PER_BROKER, default="SunX509", no_effect=ONLY_PLAINTEXT, doc="How the key is managed."
    )
    ssl_trustmanager_algorithm: string = key(
        update=PER_BROKER, default="PKIX", no_effect=ONLY_PLAINTEXT, doc="How trust is managed."
    )
    ssl_principal_mapping_rules: string = key(
        default="DEFAULT",
        no_effect=ONLY_PLAINTEXT,
        doc="How a distinguished name becomes the name of a user.",
    )
    ssl_provider: string | None = key(
        update=PER_BROKER, default=None, no_effect=ONLY_PLAINTEXT, doc="The security provider for TLS."
    )
    ssl_secure_random_implementation: string | None = key(
        update=PER_BROKER, default=None, no_effect=ONLY_PLAINTEXT, doc="Where its random numbers come from."
    )
    security_providers: string | None = key(
        default=None, no_effect=ONLY_PLAINTEXT, doc="Classes that bring security algorithms along."
    )

    # Delegation tokens
    delegation_token_secret_key: password | None = key(
        default=None,
        no_effect=NO_TOKENS,
        doc="The secret that signs delegation tokens, the same on all brokers.",
    )
    delegation_token_master_key: password | None = key(
        default=None, no_effect=NO_TOKENS, doc="The older name of that secret."
    )
    delegation_token_max_lifetime_ms: int64 = key(
        default=7 * DAY_MS, at_least=1, no_effect=NO_TOKENS, doc="How long a token can be renewed."
    )
    delegation_token_expiry_time_ms: int64 = key(
        default=DAY_MS, at_least=1, no_effect=NO_TOKENS, doc="How long a token is valid."
    )
    delegation_token_expiry_check_interval_ms: int64 = key(
        default=HOUR_MS, at_least=1, no_effect=NO_TOKENS, doc="How often expired tokens are removed."
    )

    # Passwords in ZooKeeper
    password_encoder_secret: password | None = key(
        default=None,
        no_effect=NO_STORED_PASSWORDS,
        doc="The secret that stored passwords are encrypted with.",
    )
    password_encoder_old_secret: password | None = key(
        default=None, no_effect=NO_STORED_PASSWORDS, doc="The secret before that."
    )
    password_encoder_keyfactory_algorithm: string | None = key(
        default=None, no_effect=NO_STORED_PASSWORDS, doc="How a key is made of it."
    )
    password_encoder_cipher_algorithm: string = key(
        default="AES/CBC/PKCS5Padding", no_effect=NO_STORED_PASSWORDS, doc="The cipher."
    )
    password_encoder_key_length: int32 = key(
        default=128, at_least=8, no_effect=NO_STORED_PASSWORDS, doc="The length of the key, in bits."
    )
    password_encoder_iterations: int32 = key(
        default=4_096, at_least=1024, no_effect=NO_STORED_PASSWORDS, doc="How often it is hashed."
    )

    # TLS with ZooKeeper
    zookeeper_clientCnxnSocket: string | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The class that talks to ZooKeeper."
    )
    zookeeper_ssl_client_enable: boolean = key(
        default=False,
        form=Form("false", "false, since TLS is not spoken with ZooKeeper"),
        no_effect=PLAIN_ZOOKEEPER,
        doc="Talk TLS with ZooKeeper.",
    )
    zookeeper_ssl_cipher_suites: words | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="Its ciphers."
    )
    zookeeper_ssl_crl_enable: boolean = key(
        default=False, no_effect=PLAIN_ZOOKEEPER, doc="Look into lists of revoked certificates."
    )
    zookeeper_ssl_ocsp_enable: boolean = key(
        default=False, no_effect=PLAIN_ZOOKEEPER, doc="Ask whether a certificate is revoked."
    )
    zookeeper_ssl_enabled_protocols: words | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="Versions of TLS that may be used."
    )
    zookeeper_ssl_protocol: string = key(
        default="TLSv1.2", no_effect=PLAIN_ZOOKEEPER, doc="The version of TLS."
    )
    zookeeper_ssl_endpoint_identification_algorithm: string = key(
        default="HTTPS", no_effect=PLAIN_ZOOKEEPER, doc="How ZooKeeper's certificate is checked."
    )
    zookeeper_ssl_keystore_location: string | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The file with the certificate and its key."
    )
    zookeeper_ssl_keystore_password: password | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The password of that file."
    )
    zookeeper_ssl_keystore_type: string | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The format of that file."
    )
    zookeeper_ssl_truststore_location: string | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The file with the certificates that are trusted."
    )
    zookeeper_ssl_truststore_password: password | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The password of that file."
    )
    zookeeper_ssl_truststore_type: string | None = key(
        default=None, no_effect=PLAIN_ZOOKEEPER, doc="The format of that file."
    )
