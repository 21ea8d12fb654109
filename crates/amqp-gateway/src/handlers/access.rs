//! Class access: tickets of AMQP 0-8. Old clients ask for one before anything else; any number does, and nothing looks at it again.

use amqp_wire::access;

use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::Failure;

pub(crate) fn handle(
    connection: &mut Connection,
    channel: &mut Channel,
    method: access::Method<'_>,
) -> Result<(), Failure> {
    match method {
        access::Method::Request(_) => {
            connection.out.method(channel.number, &access::RequestOk { ticket: 1 });
            Ok(())
        }
        access::Method::RequestOk(_) => Err(super::unimplemented()),
    }
}
