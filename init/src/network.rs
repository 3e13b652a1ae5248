//! The machine on its networks: the public links, and the VPN among members.

pub(crate) mod mesh;
pub(crate) mod nftables;
pub(crate) mod policies;
pub(crate) mod uplink;

use std::io;

/// Refusal by the kernel's routing socket, without the message that it was about: to show one, all kinds of messages there are would
/// have to be readable for people.
fn refusal(error: rtnetlink::Error) -> io::Error {
    use rtnetlink::Error;
    match error {
        Error::NetlinkError(refused) => refused.to_io(),
        Error::UnexpectedMessage(_) => io::Error::other("the kernel answers with a message that was not asked for"),
        Error::RequestFailed => io::Error::other("the kernel gives no answer"),
        Error::NamespaceError(text) | Error::InvalidNla(text) => io::Error::new(io::ErrorKind::InvalidInput, text),
        Error::InvalidHardwareAddress(_) | Error::InvalidIp(_) | Error::InvalidAddress(..) => {
            io::Error::new(io::ErrorKind::InvalidData, "the kernel tells an address of another form")
        }
    }
}
