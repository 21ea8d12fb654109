//! Kafka wire protocol: bytes to messages and back, nothing else.
