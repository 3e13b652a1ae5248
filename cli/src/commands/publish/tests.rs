//! Ports as a person publishes, lists and closes them, at a coordinator that is a fake.

use clap::Parser as _;
use cluster::record::Standing;

use super::*;
use crate::context::home;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn typed(line: &str) -> Result<Command, String> {
    let read = Line::try_parse_from(["publish"].into_iter().chain(line.split(' ')));
    read.map(|line| line.command).map_err(|error| error.to_string())
}

async fn did(line: &str, context: &Context) -> Result<String, Failure> {
    let mut out = Vec::new();
    let command = typed(line).expect(line);
    run(&command, context, &mut out).await.map(|()| String::from_utf8(out).unwrap())
}

fn machine(n: u8, name: &str) -> ListedMachine {
    ListedMachine { id: MachineId([n; 16]), ..home::member(name, Standing::Member) }
}

/// Proves: A7
#[tokio::test]
async fn ports_are_published_listed_and_closed() {
    let (_root, context, coordinator) = home::with_a_coordinator().await;
    coordinator.listed.lock().unwrap().extend([machine(1, "m1"), machine(2, "m2")]);
    let said = did("add --host 443,80/tcp --on m1,m2 --from 192.0.2.0/24", &context).await.unwrap();
    assert_eq!(said, "80/tcp,443/tcp of m1, m2 is open to 192.0.2.0/24\n");
    let said = did("add --host 53/udp --on m2", &context).await.unwrap();
    assert_eq!(said, "53/udp of m2 is open to everybody\n");
    let said = did("add 80/udp --namespace web --on m1", &context).await.unwrap();
    assert_eq!(said, "80/udp of services in namespace web, on m1, is open to everybody\n");
    let said = did("add 8443/tcp --namespace web", &context).await.unwrap();
    assert_eq!(said, "8443/tcp of services in namespace web, on all workers, is open to everybody\n");
    let said = did("add 443/tcp --namespace web --at 192.0.2.50", &context).await.unwrap();
    let expected = "443/tcp of services in namespace web, on all workers, is open to everybody at 192.0.2.50\n";
    assert_eq!(said, expected);
    let listed = did("list", &context).await.unwrap();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RULE", "PORTS", "NAMESPACE", "MACHINES", "ADDRESS", "FROM"]);
    assert_eq!(rows[1], ["7", "80/tcp", "443/tcp", "-", "m1", "m2", "-", "192.0.2.0/24"]);
    assert_eq!(rows[2], ["8", "53/udp", "-", "m2", "-", "everywhere"]);
    assert_eq!(rows[3], ["9", "80/udp", "web", "m1", "-", "everywhere"]);
    assert_eq!(rows[4], ["10", "8443/tcp", "web", "all", "workers", "-", "everywhere"]);
    assert_eq!(rows[5], ["11", "443/tcp", "web", "all", "workers", "192.0.2.50", "on", "m1", "everywhere"]);
    assert_eq!(did("remove 7", &context).await.unwrap(), "rule 7 publishes nothing any more\n");
    assert_eq!(coordinator.published.lock().unwrap().len(), 4);
}

/// Proves: A7
#[tokio::test]
async fn what_no_machine_publishes_is_refused_before_any_call() {
    let (_root, context, coordinator) = home::with_a_coordinator().await;
    for (ports, said) in [("80,7836/tcp", "7836/tcp is Cairn's own"), ("7838/udp", "7838/udp is Cairn's own")] {
        let refused = did(&format!("add --host {ports} --on m1"), &context).await.unwrap_err();
        assert!(refused.code() == Code::Usage && refused.reason().contains(said), "{}", refused.reason());
    }
    let refused = did("add 80/tcp --namespace web --at 127.0.0.1", &context).await.unwrap_err();
    assert_eq!(
        refused.reason(),
        "these ports cannot be published: 127.0.0.1 is no address that a machine of a network can have"
    );
    assert_eq!(coordinator.calls().len(), 0);
    let unknown = did("add --host 80/tcp --on m9", &context).await.unwrap_err();
    assert_eq!(unknown.reason(), "the cluster has no machine called m9");
    assert!(coordinator.published.lock().unwrap().is_empty());
}

/// Proves: A7
#[test]
fn a_line_that_publishes_no_port_says_why() {
    for (line, said) in [
        ("add --host 80-90/tcp --on m1", "is a range of ports"),
        ("add --host 80/sctp --on m1", "`sctp` is neither tcp nor udp"),
        ("add --host 80 --on m1", "names no protocol"),
        ("add --host 80,80/tcp --on m1", "it names 80/tcp twice"),
        ("add --host 80/tcp --on m1 --from fd00::/8", "uplinks have no IPv6 yet"),
        ("add --host 80/tcp --on m1 --from 192.0.2.1/24", "the address has bits set beyond the prefix"),
        ("add --host 80/tcp", "--on <MACHINES>"),
        ("add --on m1", "<PORTS>"),
        ("add 80/tcp", "--namespace <NAMESPACE>"),
        ("add --namespace web", "<PORTS>"),
        ("add 80/tcp --namespace Web", "a namespace's name has"),
        ("add 80/tcp --host 81/tcp --on m1", "cannot be used with"),
        ("add --host 81/tcp --namespace web", "cannot be used with"),
    ] {
        let refused = typed(line).expect_err(line);
        assert!(refused.contains(said), "{line}: {refused}");
    }
}
