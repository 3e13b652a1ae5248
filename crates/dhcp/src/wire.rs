//! The DHCP message, bytes against meaning (RFC 2131 §2, RFC 2132).
//! It owns the fixed part and the dozen options this project uses; it must never guess: a wrong length, a repeated
//! option, an option area without end are errors. Options it does not use are skipped by their length.

use std::fmt;
use std::net::Ipv4Addr;

use thiserror::Error;

/// From `op` to `file`.
const FIXED: usize = 236;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Emitted messages are padded to a BOOTP message: some relays drop shorter ones (RFC 1542 §2.1).
const SHORTEST: usize = 300;
/// More addresses do not fit one option's length byte.
const MOST_ADDRESSES: usize = 63;

const SUBNET_MASK: u8 = 1;
const ROUTER: u8 = 3;
const DNS: u8 = 6;
const REQUESTED_IP: u8 = 50;
const LEASE_TIME: u8 = 51;
const OVERLOAD: u8 = 52;
const MESSAGE_TYPE: u8 = 53;
const SERVER_ID: u8 = 54;
const PARAMETER_LIST: u8 = 55;
const MAX_SIZE: u8 = 57;
const RENEWAL_TIME: u8 = 58;
const REBINDING_TIME: u8 = 59;
const PAD: u8 = 0;
const END: u8 = 255;

/// Options that a client asks a server for.
const WANTED: [u8; 6] = [SUBNET_MASK, ROUTER, DNS, LEASE_TIME, RENEWAL_TIME, REBINDING_TIME];

/// Ethernet address of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HardwareAddress(pub [u8; 6]);

impl HardwareAddress {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The length of a network prefix in bits, 0 to 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(u8);

impl Prefix {
    /// So many bits; `None` above 32.
    #[must_use]
    pub const fn new(bits: u8) -> Option<Self> {
        if bits <= 32 { Some(Self(bits)) } else { None }
    }

    /// Length of the prefix, 0 to 32 bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// As a subnet mask.
    #[must_use]
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.0)).unwrap_or(0))
    }

    /// The prefix a mask means; `None` when its ones have gaps.
    #[must_use]
    pub fn from_mask(mask: Ipv4Addr) -> Option<Self> {
        let ones = mask.to_bits().leading_ones();
        let prefix = Self(u8::try_from(ones).ok()?);
        (prefix.mask() == mask).then_some(prefix)
    }

    /// Whether both lie in the same network of this length.
    #[must_use]
    pub fn joins(self, one: Ipv4Addr, other: Ipv4Addr) -> bool {
        let mask = self.mask().to_bits();
        one.to_bits() & mask == other.to_bits() & mask
    }

    /// Whether a host of a network of this length may have this address: neither the network's own nor its
    /// broadcast address, and of the kind a host can have at all.
    #[must_use]
    pub fn is_host(self, address: Ipv4Addr) -> bool {
        let host_bits = !self.mask().to_bits();
        let host = address.to_bits() & host_bits;
        is_host_address(address) && (self.0 >= 31 || (host != 0 && host != host_bits))
    }
}

/// Whether a host can have this address at all: not 0/8, loopback, multicast, reserved.
#[must_use]
pub fn is_host_address(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    (1..224).contains(&first) && first != 127
}

/// Type of a message (RFC 2132 §9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// A client looks for servers.
    Discover,
    /// A server offers an address.
    Offer,
    /// A client takes an offer, or keeps its lease.
    Request,
    /// A client found the address in use.
    Decline,
    /// The lease is given.
    Ack,
    /// The lease is refused.
    Nak,
    /// A client gives its address back.
    Release,
    /// A client with an address asks for the rest.
    Inform,
}

impl MessageType {
    const ALL: [Self; 8] =
        [Self::Discover, Self::Offer, Self::Request, Self::Decline, Self::Ack, Self::Nak, Self::Release, Self::Inform];

    /// The code is the place in the list, from 1.
    const fn code(self) -> u8 {
        match self {
            Self::Discover => 1,
            Self::Offer => 2,
            Self::Request => 3,
            Self::Decline => 4,
            Self::Ack => 5,
            Self::Nak => 6,
            Self::Release => 7,
            Self::Inform => 8,
        }
    }

    /// 1 when a client says it, 2 when a server does.
    const fn op(self) -> u8 {
        match self {
            Self::Offer | Self::Ack | Self::Nak => 2,
            Self::Discover | Self::Request | Self::Decline | Self::Release | Self::Inform => 1,
        }
    }
}

/// A DHCP message over Ethernet. Times are in seconds; a lease time of `u32::MAX` is for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpMessage {
    /// Type of the message.
    pub message_type: MessageType,
    /// Chosen by the client; the answer carries the same.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The client cannot receive unicast yet.
    pub broadcast: bool,
    /// The client's address, while it has one.
    pub ciaddr: Ipv4Addr,
    /// The address given.
    pub yiaddr: Ipv4Addr,
    /// The relay it came through; zero without one.
    pub giaddr: Ipv4Addr,
    /// The client's Ethernet address.
    pub chaddr: HardwareAddress,
    /// Option 50.
    pub requested_ip: Option<Ipv4Addr>,
    /// Option 54.
    pub server_id: Option<Ipv4Addr>,
    /// Option 51.
    pub lease_time: Option<u32>,
    /// Option 58, T1.
    pub renewal_time: Option<u32>,
    /// Option 59, T2.
    pub rebinding_time: Option<u32>,
    /// Option 1.
    pub prefix: Option<Prefix>,
    /// Option 3, best first; at most 63.
    pub routers: Vec<Ipv4Addr>,
    /// Option 6, best first; at most 63.
    pub dns: Vec<Ipv4Addr>,
    /// Option 57: the largest message the client takes, at least 576.
    pub max_size: Option<u16>,
}

/// Why bytes are no DHCP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Shorter than the fixed part and the magic number.
    #[error("the message ends within its fixed part")]
    Short,
    /// Neither 1 nor 2, or not the one of its type.
    #[error("operation {0} does not fit the message")]
    Op(u8),
    /// Not Ethernet's type and length.
    #[error("hardware type {kind} with addresses of {length} bytes is not Ethernet")]
    Hardware {
        /// `htype`.
        kind: u8,
        /// `hlen`.
        length: u8,
    },
    /// A BOOTP message, or none at all.
    #[error("the magic number is missing")]
    Magic,
    /// An option area ends before its end mark.
    #[error("the options have no end")]
    NoEnd,
    /// An option reaches beyond its area.
    #[error("option {0} is cut off")]
    Cut(u8),
    /// An option's length is not one it can have.
    #[error("option {code} cannot have {length} bytes")]
    Length { code: u8, length: u8 },
    /// An option that may come once comes again.
    #[error("option {0} is repeated")]
    Repeated(u8),
    /// An option's value is none of those it can have.
    #[error("option {0} has a value it cannot have")]
    Value(u8),
    /// No option 53.
    #[error("the message has no type")]
    NoType,
}

impl DhcpMessage {
    /// A message with nothing in it but its type, transaction and client.
    #[must_use]
    pub const fn new(message_type: MessageType, xid: u32, chaddr: HardwareAddress) -> Self {
        Self {
            message_type,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr,
            requested_ip: None,
            server_id: None,
            lease_time: None,
            renewal_time: None,
            rebinding_time: None,
            prefix: None,
            routers: Vec::new(),
            dns: Vec::new(),
            max_size: None,
        }
    }

    /// Reads a UDP payload.
    ///
    /// # Errors
    /// [`MessageError`] names the first thing that is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or(MessageError::Short)?;
        let (magic, area) = rest.split_first_chunk::<4>().ok_or(MessageError::Short)?;
        let [op, kind, length, ..] = *fixed;
        if (kind, length) != (1, 6) {
            return Err(MessageError::Hardware { kind, length });
        }
        if *magic != MAGIC {
            return Err(MessageError::Magic);
        }
        let mut options = Options::default();
        options.read(area)?;
        // The sender ran out of room and went on in `file`, then in `sname` (RFC 2131 §4.1).
        let overload = options.overload.map_or(0, |[which]| which);
        if overload & 1 != 0 {
            options.read(&fixed[108..236])?;
        }
        if overload & 2 != 0 {
            options.read(&fixed[44..108])?;
        }
        let message_type = options.message_type.ok_or(MessageError::NoType)?;
        if op != message_type.op() {
            return Err(MessageError::Op(op));
        }
        let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        Ok(Self {
            message_type,
            xid: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
            broadcast: fixed[10] & 0x80 != 0,
            ciaddr: address(12),
            yiaddr: address(16),
            giaddr: address(24),
            chaddr: HardwareAddress([fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33]]),
            requested_ip: options.requested_ip.map(Ipv4Addr::from),
            server_id: options.server_id.map(Ipv4Addr::from),
            lease_time: options.lease_time.map(u32::from_be_bytes),
            renewal_time: options.renewal_time.map(u32::from_be_bytes),
            rebinding_time: options.rebinding_time.map(u32::from_be_bytes),
            prefix: options.prefix,
            routers: options.routers.unwrap_or_default(),
            dns: options.dns.unwrap_or_default(),
            max_size: options.max_size.map(u16::from_be_bytes),
        })
    }

    /// The UDP payload. Clients' messages ask for the options this type has fields for.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..3].copy_from_slice(&[self.message_type.op(), 1, 6]);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.secs.to_be_bytes());
        bytes[10] = if self.broadcast { 0x80 } else { 0 };
        bytes[12..16].copy_from_slice(&self.ciaddr.octets());
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[24..28].copy_from_slice(&self.giaddr.octets());
        bytes[28..34].copy_from_slice(&self.chaddr.0);
        bytes.extend(MAGIC);
        put(&mut bytes, MESSAGE_TYPE, &[self.message_type.code()]);
        put_some(&mut bytes, SERVER_ID, self.server_id.map(|address| address.octets()));
        put_some(&mut bytes, REQUESTED_IP, self.requested_ip.map(|address| address.octets()));
        put_some(&mut bytes, LEASE_TIME, self.lease_time.map(u32::to_be_bytes));
        put_some(&mut bytes, RENEWAL_TIME, self.renewal_time.map(u32::to_be_bytes));
        put_some(&mut bytes, REBINDING_TIME, self.rebinding_time.map(u32::to_be_bytes));
        put_some(&mut bytes, SUBNET_MASK, self.prefix.map(|prefix| prefix.mask().octets()));
        put_addresses(&mut bytes, ROUTER, &self.routers);
        put_addresses(&mut bytes, DNS, &self.dns);
        put_some(&mut bytes, MAX_SIZE, self.max_size.map(u16::to_be_bytes));
        if matches!(self.message_type, MessageType::Discover | MessageType::Request | MessageType::Inform) {
            put(&mut bytes, PARAMETER_LIST, &WANTED);
        }
        bytes.push(END);
        bytes.resize(bytes.len().max(SHORTEST), PAD);
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, code: u8, value: &[u8]) {
    let length = u8::try_from(value.len()).expect("callers pass a few bytes, or at most 63 addresses of 4");
    bytes.extend([code, length]);
    bytes.extend(value);
}

fn put_some<const N: usize>(bytes: &mut Vec<u8>, code: u8, value: Option<[u8; N]>) {
    if let Some(value) = value {
        put(bytes, code, &value);
    }
}

fn put_addresses(bytes: &mut Vec<u8>, code: u8, addresses: &[Ipv4Addr]) {
    if !addresses.is_empty() {
        let octets: Vec<u8> = addresses.iter().take(MOST_ADDRESSES).flat_map(|address| address.octets()).collect();
        put(bytes, code, &octets);
    }
}

/// The options of a message as they are found, over all areas.
#[derive(Default)]
struct Options {
    message_type: Option<MessageType>,
    requested_ip: Option<[u8; 4]>,
    server_id: Option<[u8; 4]>,
    lease_time: Option<[u8; 4]>,
    renewal_time: Option<[u8; 4]>,
    rebinding_time: Option<[u8; 4]>,
    prefix: Option<Prefix>,
    routers: Option<Vec<Ipv4Addr>>,
    dns: Option<Vec<Ipv4Addr>>,
    max_size: Option<[u8; 2]>,
    overload: Option<[u8; 1]>,
}

impl Options {
    /// Reads one area up to its end mark; what follows the mark is padding.
    fn read(&mut self, mut area: &[u8]) -> Result<(), MessageError> {
        loop {
            match *area {
                [] => return Err(MessageError::NoEnd),
                [END, ..] => return Ok(()),
                [PAD, ref rest @ ..] => area = rest,
                [code] => return Err(MessageError::Cut(code)),
                [code, length, ref rest @ ..] => {
                    let (value, rest) = rest.split_at_checked(length.into()).ok_or(MessageError::Cut(code))?;
                    self.take(code, length, value)?;
                    area = rest;
                }
            }
        }
    }

    fn take(&mut self, code: u8, length: u8, value: &[u8]) -> Result<(), MessageError> {
        let wrong_length = MessageError::Length { code, length };
        match code {
            MESSAGE_TYPE => {
                let [number] = fixed(code, value)?;
                let known = MessageType::ALL.into_iter().find(|known| known.code() == number);
                once(&mut self.message_type, code, known.ok_or(MessageError::Value(code))?)
            }
            REQUESTED_IP => once(&mut self.requested_ip, code, fixed(code, value)?),
            SERVER_ID => once(&mut self.server_id, code, fixed(code, value)?),
            LEASE_TIME => once(&mut self.lease_time, code, fixed(code, value)?),
            RENEWAL_TIME => once(&mut self.renewal_time, code, fixed(code, value)?),
            REBINDING_TIME => once(&mut self.rebinding_time, code, fixed(code, value)?),
            MAX_SIZE => once(&mut self.max_size, code, fixed(code, value)?),
            SUBNET_MASK => {
                let mask: [u8; 4] = fixed(code, value)?;
                let prefix = Prefix::from_mask(Ipv4Addr::from(mask)).ok_or(MessageError::Value(code))?;
                once(&mut self.prefix, code, prefix)
            }
            ROUTER => once(&mut self.routers, code, addresses(value).ok_or(wrong_length)?),
            DNS => once(&mut self.dns, code, addresses(value).ok_or(wrong_length)?),
            OVERLOAD => {
                let which = fixed(code, value)?;
                if !(1..=3).contains(&which[0]) {
                    return Err(MessageError::Value(code));
                }
                once(&mut self.overload, code, which)
            }
            // Whatever else a server or client finds worth saying.
            _ => Ok(()),
        }
    }
}

fn fixed<const N: usize>(code: u8, value: &[u8]) -> Result<[u8; N], MessageError> {
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    value.try_into().map_err(|_| MessageError::Length { code, length })
}

fn addresses(value: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let (chunks, rest) = value.as_chunks::<4>();
    (rest.is_empty() && !chunks.is_empty()).then(|| chunks.iter().copied().map(Ipv4Addr::from).collect())
}

fn once<T>(place: &mut Option<T>, code: u8, value: T) -> Result<(), MessageError> {
    if place.is_some() {
        return Err(MessageError::Repeated(code));
    }
    *place = Some(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An offer as a server sends it, with options this project does not use and one area of padding.
    fn offer() -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..8].copy_from_slice(&[2, 1, 6, 0, 0x12, 0x34, 0x56, 0x78]);
        bytes[16..20].copy_from_slice(&[10, 0, 2, 15]);
        bytes[20..24].copy_from_slice(&[10, 0, 2, 2]);
        bytes[28..34].copy_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        bytes.extend(MAGIC);
        bytes.extend([53, 1, 2, 54, 4, 10, 0, 2, 2, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2]);
        bytes.extend([6, 8, 10, 0, 2, 3, 1, 1, 1, 1, 51, 4, 0, 1, 0x51, 0x80, 12, 2, b'v', b'm', 0, 0, 255, 0, 0]);
        bytes
    }

    #[test]
    fn an_offer_is_read_by_the_byte() {
        let read = DhcpMessage::parse(&offer()).expect("an offer");
        let mut expected =
            DhcpMessage::new(MessageType::Offer, 0x1234_5678, HardwareAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        expected.yiaddr = Ipv4Addr::new(10, 0, 2, 15);
        expected.server_id = Some(Ipv4Addr::new(10, 0, 2, 2));
        expected.prefix = Prefix::new(24);
        expected.routers = vec![Ipv4Addr::new(10, 0, 2, 2)];
        expected.dns = vec![Ipv4Addr::new(10, 0, 2, 3), Ipv4Addr::new(1, 1, 1, 1)];
        expected.lease_time = Some(86_400);
        assert_eq!(read, expected);
        assert_eq!(read.chaddr.to_string(), "52:54:00:12:34:56");
    }

    #[test]
    fn a_discover_is_written_by_the_byte() {
        let mut discover = DhcpMessage::new(MessageType::Discover, 0xdead_beef, HardwareAddress([2, 0, 0, 0, 0, 9]));
        discover.secs = 3;
        discover.max_size = Some(1500);
        let bytes = discover.emit();
        assert_eq!(bytes.len(), 300);
        assert_eq!(bytes[..12], [1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 3, 0, 0]);
        assert_eq!(bytes[28..34], [2, 0, 0, 0, 0, 9]);
        let options = [99, 130, 83, 99, 53, 1, 1, 57, 2, 5, 220, 55, 6, 1, 3, 6, 51, 58, 59, 255];
        assert_eq!(bytes[236..256], options);
    }

    #[test]
    fn wrong_bytes_are_refused_by_name() {
        type Edit = fn(&mut Vec<u8>);
        let refuse = |edit: Edit| {
            let mut bytes = offer();
            edit(&mut bytes);
            DhcpMessage::parse(&bytes).expect_err("refused")
        };
        let table: [(Edit, MessageError); 20] = [
            (|bytes| bytes.truncate(239), MessageError::Short),
            (|bytes| bytes.truncate(0), MessageError::Short),
            (|bytes| bytes[0] = 1, MessageError::Op(1)),
            (|bytes| bytes[1] = 6, MessageError::Hardware { kind: 6, length: 6 }),
            (|bytes| bytes[2] = 16, MessageError::Hardware { kind: 1, length: 16 }),
            (|bytes| bytes[236] = 0, MessageError::Magic),
            (|bytes| bytes.truncate(240), MessageError::NoEnd),
            (|bytes| bytes.truncate(241), MessageError::Cut(53)),
            (|bytes| bytes.truncate(246), MessageError::Cut(54)),
            (|bytes| bytes[241] = 0, MessageError::Length { code: 53, length: 0 }),
            (|bytes| bytes[242] = 9, MessageError::Value(53)),
            (|bytes| bytes[254] = 1, MessageError::Value(1)),
            (|bytes| bytes[243] = 53, MessageError::Length { code: 53, length: 4 }),
            (|bytes| bytes[255] = 6, MessageError::Repeated(6)),
            (|bytes| bytes[240] = 200, MessageError::NoType),
            (|bytes| bytes[256] = 3, MessageError::Length { code: 3, length: 3 }),
            (|bytes| bytes[256] = 0, MessageError::Length { code: 3, length: 0 }),
            (|bytes| bytes[277] = 52, MessageError::Length { code: 52, length: 2 }),
            (|bytes| bytes[277..281].copy_from_slice(&[52, 1, 0, 0]), MessageError::Value(52)),
            (|bytes| bytes[277..281].copy_from_slice(&[52, 1, 4, 0]), MessageError::Value(52)),
        ];
        for (index, (edit, error)) in table.into_iter().enumerate() {
            assert_eq!(refuse(edit), error, "row {index}");
        }
    }

    #[test]
    fn options_may_go_on_in_file_and_sname() {
        let mut bytes = offer();
        bytes.truncate(FIXED + 4);
        bytes.extend([52, 1, 3, 53, 1, 5, 255]);
        bytes[108..115].copy_from_slice(&[51, 4, 0, 0, 0, 60, 255]);
        bytes[44..51].copy_from_slice(&[54, 4, 10, 0, 0, 1, 255]);
        let read = DhcpMessage::parse(&bytes).expect("an acknowledgement");
        assert_eq!((read.lease_time, read.server_id), (Some(60), Some(Ipv4Addr::new(10, 0, 0, 1))));
        bytes[44] = 51;
        assert_eq!(DhcpMessage::parse(&bytes), Err(MessageError::Repeated(51)));
    }

    #[test]
    fn a_field_without_options_is_not_read_for_them() {
        for (overload, options, text) in [(1, 108, 44), (2, 44, 108)] {
            let mut bytes = offer();
            bytes.truncate(FIXED + 4);
            bytes.extend([52, 1, overload, 53, 1, 5, 255]);
            bytes[options..options + 7].copy_from_slice(&[51, 4, 0, 0, 0, 60, 255]);
            bytes[text..text + 7].copy_from_slice(b"3.efi\0\0");
            assert_eq!(DhcpMessage::parse(&bytes).map(|read| read.lease_time), Ok(Some(60)), "{overload}");
        }
    }

    #[test]
    fn whoever_asks_says_what_it_wants_to_be_told() {
        let asks = |message_type| {
            let bytes = DhcpMessage::new(message_type, 1, HardwareAddress([2; 6])).emit();
            bytes[FIXED..].windows(8).any(|window| window[..2] == [PARAMETER_LIST, 6] && window[2..] == WANTED)
        };
        assert_eq!(MessageType::ALL.map(asks), [true, false, true, false, false, false, false, true]);
    }

    #[test]
    fn a_mask_is_a_prefix_or_nothing() {
        for bits in 0..=32 {
            let prefix = Prefix::new(bits).expect("up to 32");
            assert_eq!(Prefix::from_mask(prefix.mask()), Some(prefix));
        }
        assert_eq!(Prefix::new(33), None);
        assert_eq!(Prefix::from_mask(Ipv4Addr::new(255, 0, 255, 0)), None);
        let net = Prefix::new(24).expect("up to 32");
        let hosts = [0, 1, 254, 255].map(|last| net.is_host(Ipv4Addr::new(192, 168, 0, last)));
        assert_eq!(hosts, [false, true, true, false]);
        assert!(!net.is_host(Ipv4Addr::new(224, 0, 0, 1)) && !net.is_host(Ipv4Addr::LOCALHOST));
        // Of two addresses both are hosts (RFC 3021).
        let pair = Prefix::new(31).expect("up to 32");
        assert!([4, 5].into_iter().all(|last| pair.is_host(Ipv4Addr::new(192, 168, 0, last))));
        let edges = [[0, 0, 0, 1], [1, 0, 0, 1], [126, 9, 9, 9], [128, 0, 0, 1], [223, 9, 9, 9], [224, 0, 0, 1]];
        assert_eq!(edges.map(|edge| is_host_address(edge.into())), [false, true, true, true, true, false]);
        assert!(net.joins([10, 0, 0, 1].into(), [10, 0, 0, 9].into()));
        assert!(!net.joins([10, 0, 0, 1].into(), [10, 0, 1, 1].into()));
    }

    fn address() -> impl Strategy<Value = Ipv4Addr> {
        any::<u32>().prop_map(Ipv4Addr::from_bits)
    }

    prop_compose! {
        fn message()(
            (index, xid, secs, broadcast) in (0..8_usize, any::<u32>(), any::<u16>(), any::<bool>()),
            (ciaddr, yiaddr, giaddr, mac) in (address(), address(), address(), any::<[u8; 6]>()),
            (requested_ip, server_id) in (proptest::option::of(address()), proptest::option::of(address())),
            times in any::<[Option<u32>; 3]>(),
            prefix in proptest::option::of((0..=32_u8).prop_map(|bits| Prefix::new(bits).expect("up to 32"))),
            routers in proptest::collection::vec(address(), 0..64),
            dns in proptest::collection::vec(address(), 0..64),
            max_size in any::<Option<u16>>(),
        ) -> DhcpMessage {
            let [lease_time, renewal_time, rebinding_time] = times;
            DhcpMessage {
                message_type: MessageType::ALL[index], xid, secs, broadcast, ciaddr, yiaddr, giaddr,
                chaddr: HardwareAddress(mac), requested_ip, server_id, lease_time, renewal_time, rebinding_time,
                prefix, routers, dns, max_size,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in message()) {
            prop_assert_eq!(DhcpMessage::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
            looks_right: bool,
        ) {
            if looks_right && bytes.len() > 240 {
                bytes[..3].copy_from_slice(&[2, 1, 6]);
                bytes[236..240].copy_from_slice(&MAGIC);
            }
            if let Ok(message) = DhcpMessage::parse(&bytes) {
                prop_assert_eq!(DhcpMessage::parse(&message.emit()), Ok(message));
            }
        }

        #[test]
        fn a_cut_message_is_refused(message in message(), keep in 0.0..1.0_f64) {
            let bytes = message.emit();
            let end = bytes.iter().rposition(|&byte| byte == END).expect("an end");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a short length")]
            let length = (keep * end as f64) as usize;
            prop_assert!(DhcpMessage::parse(&bytes[..length]).is_err());
        }
    }
}
