//! Rules of a cluster with thousands of services, as kube-proxy writes them at its first sync, and what is promised of the program that
//! takes them, beside Debian's `nft`.

use std::time::Duration;

use crate::boots::median;
use crate::verdict::Figure;

/// Services in the text; each has two endpoints.
pub const SERVICES: u16 = 5_000;

/// CPU time of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NftTimes {
    /// Transaction of all that [`ruleset`] has.
    pub transaction: Duration,
    /// Listing of the table, as kube-proxy asks for it.
    pub listing: Duration,
}

/// Text of one transaction: chains and verdict maps as in nftables mode (`pkg/proxy/nftables/proxier.go` of Kubernetes).
#[must_use]
pub fn ruleset(services: u16) -> String {
    let table = "ip kube-proxy";
    let mut text = format!(
        "add table {table}\n\
         add chain {table} mark-for-masquerade\n\
         add rule {table} mark-for-masquerade mark set mark or 0x4000\n\
         add map {table} service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict ; }}\n\
         add chain {table} services\n\
         add rule {table} services ip daddr . meta l4proto . th dport vmap @service-ips\n"
    );
    for number in 0..services {
        let [high, low] = number.to_be_bytes();
        let (service, ip) = (format!("service-{number:05}-shop/web/tcp/http"), format!("10.96.{high}.{low}"));
        let endpoints = [1, 2].map(|n| (format!("endpoint-{number:05}-{n}"), format!("10.244.{high}.{low}"), 8080 + n));
        for (endpoint, at, port) in &endpoints {
            text += &format!(
                "add chain {table} {endpoint}\n\
                 add rule {table} {endpoint} ip saddr {at} jump mark-for-masquerade\n\
                 add rule {table} {endpoint} meta l4proto tcp dnat to {at}:{port}\n"
            );
        }
        let [(first, ..), (second, ..)] = &endpoints;
        text += &format!(
            "add chain {table} {service}\n\
             add rule {table} {service} ip daddr {ip} tcp dport 80 ip saddr != 10.244.0.0/16 jump mark-for-masquerade\n\
             add rule {table} {service} numgen random mod 2 vmap {{ 0 : goto {first} , 1 : goto {second} }}\n\
             add element {table} service-ips {{ {ip} . tcp . 80 : goto {service} }}\n"
        );
    }
    text
}

/// CPU time of the transaction and of the listing, from what the shell's `times` says after each (dash(1): its own user and system
/// time, and below that of all that it has waited for); none where the text is no such thing.
#[must_use]
pub fn times(text: &str) -> Option<NftTimes> {
    let time = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        let seconds = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        Some(seconds + Duration::from_secs(minutes.parse::<u64>().ok()?.checked_mul(60)?))
    };
    let line = |line: &str| line.split_whitespace().map(time).sum::<Option<Duration>>();
    let lines: Vec<Duration> = text.lines().map(line).collect::<Option<_>>()?;
    let [_, transaction, _, both] = lines[..] else { return None };
    Some(NftTimes { transaction, listing: both.checked_sub(transaction)? })
}

/// Ratios of the medians, beside what is promised of them.
#[must_use]
pub fn findings(ours: &[NftTimes], debians: &[NftTimes]) -> Vec<Figure> {
    let row = |what, of: fn(&NftTimes) -> Duration, at_most| {
        let [ours, debians] = [ours, debians].map(|side| median(side.iter().map(of).collect()));
        let ratio = ours?.as_secs_f64() / debians?.as_secs_f64();
        Some(Figure { what, measured: vec![ratio], at_most })
    };
    let rows = [
        row("transaction of 5000 services / nft", |times| times.transaction, 1.1),
        row("listing of their table / nft", |times| times.listing, 0.5),
    ];
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_says_of_its_children_is_read() {
        let said = "0m0.000s 0m0.010s\n0m1.500s 1m0.250s\n0m0.000s 0m0.010s\n0m1.700s 1m0.350s\n";
        let [transaction, listing] = [61_750, 300].map(Duration::from_millis);
        assert_eq!(times(said), Some(NftTimes { transaction, listing }));
        assert_eq!((times(""), times("0m0.0s 0m0.0s\n"), times(&said.replace('m', "h"))), (None, None, None));
    }

    #[test]
    fn either_ratio_breaks_its_limit() {
        let side = |transaction, listing| {
            let [transaction, listing] = [transaction, listing].map(Duration::from_millis);
            vec![NftTimes { transaction, listing }; 3]
        };
        let holds = |ours: &[NftTimes]| findings(ours, &side(2000, 1000)).iter().map(Figure::holds).collect::<Vec<_>>();
        assert_eq!(holds(&side(2200, 500)), [true, true]);
        assert_eq!(holds(&side(2300, 600)), [false, false]);
        assert_eq!(findings(&[], &side(2000, 1000)), [], "nothing was measured");
    }
}
