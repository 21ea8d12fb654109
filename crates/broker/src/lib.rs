//! The broker API, protocol-neutral: topics, append, read, groups, configuration.
