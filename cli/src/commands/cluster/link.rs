//! `cluster link`: what the cable of a virtual machine does to its frames, from now on.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;
use qemu::network::control::{AttachedMachine, Direction, Lane};
use qemu::network::{Chance, Cut, Faults, LONGEST_DELAY};
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format, Table};
use crate::store::{Store, StoreError};
use crate::virtual_network::{self, NetworkError};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster link                       how all cables are
  cairnctl cluster link m2 --down             as if it were pulled
  cairnctl cluster link m2 --up               a good cable again
  cairnctl cluster link m2 --delay 50ms --loss 5%
  cairnctl cluster link m2 --down --direction sent      it hears, and is not heard
  cairnctl cluster link m2 --capture          into network.pcapng, for Wireshark

What is not named is whole: each command says all that is wrong with a cable.
A network that is started anew has good cables.")]
pub(crate) struct Arguments {
    /// The machine
    #[arg(value_name = "MACHINE", value_parser = NodeName::stored, add = ArgValueCandidates::new(complete::machines))]
    named: Option<NodeName>,
    /// Let nothing through
    #[arg(long)]
    down: bool,
    /// All gets through at once
    #[arg(long, conflicts_with_all = ["down", "delay", "jitter", "loss", "duplicate", "reorder", "rate", "mtu"])]
    up: bool,
    /// Only what it sends, or only what it receives
    #[arg(long, value_enum, value_name = "WHICH")]
    direction: Option<Which>,
    /// How long each frame is on its way at least, like 50ms
    #[arg(long, value_name = "TIME", value_parser = delay)]
    delay: Option<Duration>,
    /// How much longer at most, by chance
    #[arg(long, value_name = "TIME", value_parser = delay)]
    jitter: Option<Duration>,
    /// How many frames are lost, like 5% or 0.1%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    loss: Option<Chance>,
    /// How many arrive twice
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    duplicate: Option<Chance>,
    /// How many are overtaken
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    reorder: Option<Chance>,
    /// Bits a second, like 512k, 10M or 1G
    #[arg(long, value_name = "BITS", value_parser = rate)]
    rate: Option<u64>,
    /// The longest packet in bytes; what is longer is lost without a word
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// Keep all that the machine sends and receives
    #[arg(long, conflicts_with = "no_capture")]
    capture: bool,
    /// No more
    #[arg(long)]
    no_capture: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Frames that the machine sends.
    Sent,
    /// Frames that the machine receives.
    Received,
}

/// A text that says nothing of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadLink {
    #[error("no length of time: write it like 50ms or 2s, up to {} s", LONGEST_DELAY.as_secs())]
    Delay,
    #[error("no part of a whole: write it like 5% or 0.1%")]
    Percent,
    #[error("no rate: write it like 512k, 10M or 1G, in bits a second")]
    Rate,
}

#[derive(Debug, Serialize)]
struct LinkOut {
    machine: String,
    is_plugged_in: bool,
    address: String,
    forward: String,
    capture: Option<String>,
    sent: Lane,
    received: Lane,
}

impl Arguments {
    /// Faults that are asked for of the cable; none where the options ask for nothing.
    fn faults(&self) -> Option<Faults> {
        let faults = Faults {
            cable: if self.down { Cut::Cut } else { Cut::Whole },
            loss: self.loss.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            delay: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            rate: self.rate,
            mtu: self.mtu,
        };
        (self.up || faults != Faults::default()).then_some(faults)
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (store, name) = (&context.store, context.cluster()?.name);
    let lock = store.lock(&name)?;
    let mut record = store.load(&name)?;
    let network = virtual_network::of(store, &record)?;
    let named = arguments.named.as_ref().or(context.machine.as_ref());
    let faults = arguments.faults();
    let capture = (arguments.capture || arguments.no_capture).then_some(arguments.capture);
    if faults.is_none() && capture.is_none() {
        let of = |machine: &AttachedMachine| named.is_none_or(|named| named.as_str() == machine.name);
        let machines = network.machines().map_err(NetworkError::from)?;
        return Ok(show(machines.into_iter().filter(of).collect(), context.format, out)?);
    }
    let at = record.meant(named).map_err(StoreError::from)?;
    let machine = record.machines()[at].name.clone();
    let mut did = Vec::new();
    if let Some(faults) = faults {
        let direction = arguments.direction.map(|which| match which {
            Which::Sent => Direction::Sent,
            Which::Received => Direction::Received,
        });
        network.set_faults(machine.as_str(), direction, faults).map_err(NetworkError::from)?;
        let of = match arguments.direction {
            None => "the link",
            Some(Which::Sent) => "what is sent over the link",
            Some(Which::Received) => "what is received over the link",
        };
        did.push(format!("{of} of {machine}: {}", words(&faults)));
    }
    if let Some(capture) = capture {
        let file = virtual_network::capture_file(&store.machine_directory(&name, &machine));
        network.capture(machine.as_str(), capture.then(|| file.clone())).map_err(NetworkError::from)?;
        record.machines_mut()[at].capture = capture;
        keep(store, &record, &lock)?;
        did.push(match capture {
            true => format!("what {machine} sends and receives is kept in {}", file.display()),
            false => format!("what {machine} sends and receives is no longer kept"),
        });
    }
    Ok(screen::did(context.format, out, &did.join("\n"))?)
}

fn keep(store: &Store, record: &crate::store::ClusterRecord, lock: &crate::store::Locked) -> Result<(), Failure> {
    store.save(record, lock).map_err(|error| {
        Failure::from(error).leaving("it is done, but a network that is started anew will not know of it")
    })
}

fn show(machines: Vec<AttachedMachine>, format: Format, out: &mut dyn Write) -> std::io::Result<()> {
    if format == Format::Json {
        let machines: Vec<LinkOut> = machines
            .into_iter()
            .map(|machine| LinkOut {
                machine: machine.name,
                is_plugged_in: machine.is_plugged_in,
                address: machine.address.to_string(),
                forward: machine.forward.to_string(),
                capture: machine.capture.map(|file| file.display().to_string()),
                sent: machine.sent,
                received: machine.received,
            })
            .collect();
        return screen::json(out, &machines);
    }
    let mut table = Table::new(["MACHINE", "LINK", "ADDRESS", "SENT", "RECEIVED", "LOST", "CAPTURE"]);
    for machine in machines {
        let lost = |lane: &Lane| lane.counters.dropped.values().sum::<u64>();
        table.row([
            machine.name.clone(),
            in_short(&machine),
            machine.address.to_string(),
            machine.sent.counters.delivered.to_string(),
            machine.received.counters.delivered.to_string(),
            (lost(&machine.sent) + lost(&machine.received)).to_string(),
            machine.capture.map_or_else(|| "-".to_owned(), |file| file.display().to_string()),
        ]);
    }
    table.print(out)
}

/// A machine's link in a few words.
pub(super) fn in_short(machine: &AttachedMachine) -> String {
    let (sent, received) = (words(&machine.sent.faults), words(&machine.received.faults));
    match (machine.is_plugged_in, sent == received) {
        (false, _) => "unplugged".to_owned(),
        (true, true) => sent,
        (true, false) => format!("sent {sent}, received {received}"),
    }
}

/// Faults of one direction of a cable, in words.
fn words(faults: &Faults) -> String {
    let Faults { cable, loss, duplicate, reorder, delay, jitter, rate, mtu } = *faults;
    if cable == Cut::Cut {
        return "down".to_owned();
    }
    let part = |name: &str, chance: Chance| {
        (chance != Chance::default()).then(|| format!("{name} {}%", f64::from(u32::from(chance)) / 10_000.0))
    };
    let time = |name: &str, time: Duration| (!time.is_zero()).then(|| format!("{name} {time:?}"));
    let all = [
        time("delay", delay),
        time("jitter", jitter),
        part("loss", loss),
        part("duplicate", duplicate),
        part("reorder", reorder),
        rate.map(|rate| format!("rate {rate} bit/s")),
        mtu.map(|mtu| format!("mtu {mtu}")),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "up".to_owned() } else { all.join(" ") }
}

fn delay(text: &str) -> Result<Duration, BadLink> {
    let units = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let micros = units.into_iter().find_map(|(unit, worth)| digits(text.strip_suffix(unit)?)?.checked_mul(worth));
    micros.map(Duration::from_micros).filter(|length| *length <= LONGEST_DELAY).ok_or(BadLink::Delay)
}

fn percent(text: &str) -> Result<Chance, BadLink> {
    let number = text.strip_suffix('%').ok_or(BadLink::Percent)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let part = (1..=4).contains(&part.len()).then(|| format!("{part:0<4}")).ok_or(BadLink::Percent)?;
    let whole = digits(whole).and_then(|whole| whole.checked_mul(10_000));
    let parts = whole.and_then(|whole| whole.checked_add(digits(&part)?)).ok_or(BadLink::Percent)?;
    u32::try_from(parts).ok().and_then(|parts| Chance::per_million(parts).ok()).ok_or(BadLink::Percent)
}

fn rate(text: &str) -> Result<u64, BadLink> {
    let units = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let read = units.into_iter().find_map(|(unit, worth)| digits(text.strip_suffix(unit)?)?.checked_mul(worth));
    read.filter(|rate| *rate > 0).ok_or(BadLink::Rate)
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_cable_is_read_strictly_and_said_back() {
        let millis = Duration::from_millis;
        assert_eq!(
            (delay("50ms"), delay("2s"), delay("70us")),
            (Ok(millis(50)), Ok(millis(2000)), Ok(Duration::from_micros(70)))
        );
        for bad in ["", "50", "ms", "-1ms", "1.5s", "61s", "99999999999999999999s"] {
            assert_eq!(delay(bad), Err(BadLink::Delay), "{bad}");
        }
        let parts = |text| percent(text).map(u32::from);
        assert_eq!(
            (parts("5%"), parts("0.1%"), parts("100%"), parts("0.0001%")),
            (Ok(50_000), Ok(1000), Ok(1_000_000), Ok(1))
        );
        for bad in ["", "5", "%", ".5%", "5.%", "-1%", "100.1%", "0.00001%", "99999999999999999999%"] {
            assert_eq!(parts(bad), Err(BadLink::Percent), "{bad}");
        }
        assert_eq!((rate("512k"), rate("10M"), rate("1G")), (Ok(512_000), Ok(10_000_000), Ok(1_000_000_000)));
        for bad in ["", "10", "M", "0M", "1.5M", "99999999999999999G"] {
            assert_eq!(rate(bad), Err(BadLink::Rate), "{bad}");
        }
        let faults = Faults {
            delay: millis(50),
            loss: percent("5%").unwrap(),
            reorder: percent("0.25%").unwrap(),
            mtu: Some(1400),
            ..Faults::default()
        };
        assert_eq!(words(&faults), "delay 50ms loss 5% reorder 0.25% mtu 1400");
        assert_eq!(words(&Faults::default()), "up");
        assert_eq!(words(&Faults { cable: Cut::Cut, ..faults }), "down");
    }
}
