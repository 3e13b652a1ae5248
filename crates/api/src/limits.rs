//! Sizes both ends hold each other to, in bytes unless said.

/// The largest request a machine decodes: the largest there is carries [`TUNNEL_CHUNK`] or a certificate request.
pub const REQUEST_BYTES: usize = 64 << 10;

/// The largest request of a caller without a certificate: what it may call takes none of it.
pub const STRANGER_REQUEST_BYTES: usize = 1 << 10;

/// The largest of whoever activates a blank machine: a config with its proof.
pub const ACTIVATION_REQUEST_BYTES: usize = 9 << 10;

/// The largest request of a caller that has shown a machine's key: it redeems a ticket, or asks for its cluster key.
pub const MACHINE_REQUEST_BYTES: usize = 9 << 10;

/// The largest answer a caller decodes: a timeline, a list of services, one log line.
pub const RESPONSE_BYTES: usize = 1 << 20;

/// The largest piece of a tunnel's bytes in one message; leaves room for the framing in [`REQUEST_BYTES`].
pub const TUNNEL_CHUNK: usize = 32 << 10;

/// The largest line of a log entry; longer ones are cut by the machine.
pub const LOG_LINE_BYTES: usize = 8 << 10;

const _: () = assert!(keys::activation::MOST_CONFIG_BYTES + 64 <= ACTIVATION_REQUEST_BYTES);
const _: () = assert!(cluster::redeem::MOST_REQUEST_BYTES + 16 <= MACHINE_REQUEST_BYTES);
const _: () = assert!(TUNNEL_CHUNK + 64 <= REQUEST_BYTES && LOG_LINE_BYTES + 1024 <= RESPONSE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out: both ends of a connection may be of different versions.
    #[test]
    fn sizes_are_what_both_ends_were_promised() {
        let sizes = [
            REQUEST_BYTES,
            STRANGER_REQUEST_BYTES,
            ACTIVATION_REQUEST_BYTES,
            MACHINE_REQUEST_BYTES,
            RESPONSE_BYTES,
            TUNNEL_CHUNK,
            LOG_LINE_BYTES,
        ];
        assert_eq!(sizes, [65_536, 1_024, 9_216, 9_216, 1_048_576, 32_768, 8_192]);
    }
}
