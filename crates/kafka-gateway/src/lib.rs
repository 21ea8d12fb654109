//! The Kafka gateway: session state machine and one handler file per API.
