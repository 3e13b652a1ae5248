//! Networks around this host, as its routes have them (proc_net_route of Linux, `net/ipv4/fib_trie.c` `fib_route_seq_show`).

use std::fs;
use std::net::Ipv4Addr;

use model::{Ipv4Prefix, LINK_BITS};

const ROUTES: &str = "/proc/net/route";

/// Networks that the host reaches by a route of their own. None where the host does not tell.
pub(crate) fn of_this_host() -> Vec<Ipv4Prefix> {
    fs::read_to_string(ROUTES).map(|routes| read(&routes)).unwrap_or_default()
}

/// Destinations of a table of routes, but for default routes.
fn read(routes: &str) -> Vec<Ipv4Prefix> {
    let destination = |line: &str| {
        let mut columns = line.split_whitespace();
        let (address, mask) = (number(columns.nth(1)?)?, number(columns.nth(5)?)?);
        Ipv4Prefix::around(Ipv4Addr::from(address), u8::try_from(mask.leading_ones()).ok()?).ok()
    };
    // Half of all addresses is no network, but another form of a default route.
    routes.lines().skip(1).filter_map(destination).filter(|network| LINK_BITS.contains(&network.bits())).collect()
}

/// Number of a column, whose bytes stand as they are in memory.
fn number(column: &str) -> Option<u32> {
    let number = u32::from_str_radix(column, 16).ok()?;
    Some(u32::from_be_bytes(number.to_ne_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun0\t00000080\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
broken\t0000000A
";

    #[test]
    #[cfg(target_endian = "little")]
    fn networks_are_those_of_routes_but_the_default_one() {
        assert_eq!(read(TABLE), ["192.0.2.0/24", "10.0.0.0/8"].map(|network| network.parse().unwrap()));
        assert_eq!(read(""), []);
    }
}
