//! Raw Ethernet frames of one link (packet(7)): how DHCP speaks before there is an address, and ARP at any time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

/// `ETH_P_IP` of `include/uapi/linux/if_ether.h`.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// `ETH_P_ARP`.
const ETHERTYPE_ARP: u16 = 0x0806;

/// A non-blocking `AF_PACKET` socket bound to one link; carries whole Ethernet frames of one EtherType.
#[derive(Debug)]
pub struct PacketSocket(File);

impl PacketSocket {
    /// Opens a socket on the link with kernel index `link` that hears UDP to `port` and nothing else: other traffic of
    /// the link never wakes the caller.
    ///
    /// # Errors
    /// When the kernel has no packet sockets, or no such link.
    pub fn open(link: u32, port: u16) -> io::Result<Self> {
        Self::bound(link, ETHERTYPE_IPV4, |socket| filter(socket, port))
    }

    /// Opens a socket on the link with kernel index `link` that hears all ARP there.
    ///
    /// # Errors
    /// When the kernel has no packet sockets, or no such link.
    pub fn open_arp(link: u32) -> io::Result<Self> {
        Self::bound(link, ETHERTYPE_ARP, |_| Ok(()))
    }

    fn bound(link: u32, protocol: u16, prepare: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<Self> {
        let protocol = protocol.to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
        let fd = libc::c_int::try_from(crate::check(fd.into())?).expect("descriptors are small");
        // SAFETY: the kernel just returned this descriptor and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        prepare(&socket)?;
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

    /// A second descriptor of the same socket, to wait on.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(Into::into)
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

/// Lets through IPv4 packets, unfragmented or first fragments, of UDP to `port` (classic BPF,
/// `Documentation/networking/filter.rst`). Offsets are from the start of the Ethernet frame.
fn filter(socket: &OwnedFd, port: u16) -> io::Result<()> {
    const fn op(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf, k }
    }
    let mut program = [
        op(0x30, 0, 0, 23),          // A = protocol
        op(0x15, 0, 6, 17),          // UDP? else drop
        op(0x28, 0, 0, 20),          // A = flags and fragment offset
        op(0x45, 4, 0, 0x1fff),      // a later fragment? drop
        op(0xb1, 0, 0, 14),          // X = length of the IP header
        op(0x48, 0, 0, 16),          // A = destination port
        op(0x15, 0, 1, port.into()), // ours? else drop
        op(0x06, 0, 0, 0x4_0000),    // pass
        op(0x06, 0, 0, 0),           // drop
    ];
    let filter =
        libc::sock_fprog { len: libc::c_ushort::try_from(program.len()).expect("9"), filter: program.as_mut_ptr() };
    let length = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).expect("16 bytes");
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: `filter` points to `len` instructions that live until the call returns; the kernel copies them.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const filter).cast(), length) };
    crate::check(result.into()).map(drop)
}
