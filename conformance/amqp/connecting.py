"""A connection to a broker that may be killed at any moment."""

import pika


def connect(broker):
    """Opens a connection; a broker that is not there is an OSError."""
    host, port = broker.amqp.rsplit(":", 1)
    try:
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=5, connection_attempts=1))
    except ValueError as error:
        # pika asks a socket that has just connected for its peer; that of a broker that was killed meanwhile has none.
        raise ConnectionError(str(error)) from error
