//! Raw Ethernet frames of one link (packet(7)): how DHCP speaks before there is an address.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;

/// `ETH_P_IP` of `include/uapi/linux/if_ether.h`.
const ETHERTYPE_IPV4: u16 = 0x0800;

/// A non-blocking `AF_PACKET` socket bound to one link; carries whole Ethernet frames with EtherType IPv4.
#[derive(Debug)]
pub struct PacketSocket(File);

impl PacketSocket {
    /// Opens a socket on the link with kernel index `link`.
    ///
    /// # Errors
    /// When the kernel has no packet sockets, or no such link.
    pub fn open(link: u32) -> io::Result<Self> {
        let protocol = ETHERTYPE_IPV4.to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
        let fd = libc::c_int::try_from(crate::check(fd.into())?).expect("descriptors are small");
        // SAFETY: the kernel just returned this descriptor and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_ll {
            sll_family: libc::sa_family_t::try_from(libc::AF_PACKET).expect("17"),
            sll_protocol: protocol,
            sll_ifindex: i32::try_from(link).map_err(io::Error::other)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("20 bytes");
        // SAFETY: `address` is a live sockaddr_ll of `length` bytes that the kernel only reads.
        let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        crate::check(result.into())?;
        Ok(Self(File::from(socket)))
    }

    /// Reads one frame; longer ones are cut to `buffer`.
    ///
    /// # Errors
    /// `WouldBlock` when none is there; the link's error when it went down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The link's error.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}
