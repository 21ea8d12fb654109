"""What the driver `conformance/run` is made of."""
