//! Pure state machines of consumption: the classic consumer-group protocol.
