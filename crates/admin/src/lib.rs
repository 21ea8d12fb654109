//! HTTP administration: health, metrics.
