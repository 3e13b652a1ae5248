//! The floor's machine: its root and keys, its disk, boots of it.

use std::{
    fs::File,
    io::Read,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ::image::{ImageInputs, InitProgram};
use anyhow::{Context, Result, bail};
use benches::{
    BootMilestone,
    evidence::Evidence,
    floor::{self, Keys},
};
use model::KUBERNETES_API_PORT;
use pki::UnixTime;
use qemu::{
    Deadline, Machine, Vm,
    machine::{Boot as Board, Cache, Clock, Content, Disk, Forward, Kernel, Link, Mac, Nic, OnReset, Watchdog},
    run::Tie,
};

use super::{
    follow::{self, Told},
    pod::Kubectl,
    site::{Boot, CPUS, DISK, MEMORY, Site, fresh},
};
use xtask::progress::step;

/// For hashing its executables and powering off.
const END: Duration = Duration::from_secs(300);

/// A floor that can be booted.
pub(crate) struct Floor {
    kernel: Kernel,
    root: PathBuf,
    keys: Keys,
}

/// The disk of a floor that can be booted again.
pub(crate) struct DataDisk {
    folder: PathBuf,
    file: PathBuf,
}

impl DataDisk {
    /// Takes it away: gigabytes that nobody looks at.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.file).context("remove the floor's disk")
    }
}

impl Floor {
    /// Makes its root of the same inputs as the image, with `program` in the place of `init`.
    ///
    /// # Errors
    /// Names the step.
    pub(crate) fn build(inputs: &ImageInputs, program: PathBuf, out: &Path) -> Result<Self> {
        let folder = out.join("floor");
        fresh(&folder)?;
        let mut inputs = inputs.clone();
        inputs.init = InitProgram::Release(program);
        let keys = Keys::create(now())?;
        let files = keys.files(&floor::plan(), now())?;
        let more: Vec<(&str, &[u8])> = files.iter().map(|file| (file.path.as_str(), file.bytes.as_slice())).collect();
        let root = folder.join("root.img");
        step("floor", "writing its root", || {
            let image = ::image::plain_root(&inputs, &more, &folder.join("stage"))?;
            std::fs::write(&root, image).context("write the root of the floor")
        })?;
        // QEMU wants one; an empty archive makes the kernel mount the root itself.
        let initrd = folder.join("empty.cpio");
        let empty = initramfs::FileTree::default().archive().context("make an empty initramfs")?;
        std::fs::write(&initrd, empty).context("write an empty initramfs")?;
        let consoles = ::image::cmdline::text().replace("rdinit=/init", "");
        let cmdline = format!("{} {}", consoles.trim(), floor::COMMAND_LINE);
        Ok(Self { kernel: Kernel { image: inputs.kernel.bzimage, initrd, cmdline }, root, keys })
    }

    /// A new, empty disk, in a folder of its own.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn disk(&self, site: &Site, name: &str) -> Result<DataDisk> {
        let folder = site.out.join(name);
        fresh(&folder)?;
        let file = folder.join("data.img");
        File::create(&file).and_then(|file| file.set_len(DISK)).context("make the floor's disk")?;
        Ok(DataDisk { folder, file })
    }

    /// Boots it on this disk to a running pod, asks for its evidence, and lets it power off.
    ///
    /// # Errors
    /// Names the step; its artefacts stay.
    pub(crate) fn boot(&self, site: &Site, disk: &DataDisk, name: &str) -> Result<Boot> {
        let folder = disk.folder.join(name);
        fresh(&folder)?;
        let mut vm = Vm::launch(&self.machine(&disk.file), &folder, Tie::Launcher).context("start the floor")?;
        let followed = follow::to_node_ready(&mut vm, told, || Ok(()))?;
        let server = vm.forward(KUBERNETES_API_PORT).context("the floor's apiserver has no port here")?;
        let config = folder.join("kubeconfig");
        let SocketAddr::V4(server) = server else { bail!("the forward is not IPv4") };
        std::fs::write(&config, self.keys.kubeconfig(server, now())?.as_bytes()).context("write a kubeconfig")?;
        let kubectl = Kubectl { program: site.kubectl.clone(), config };
        let pod = kubectl.run_pod(&mut vm, &followed, &folder)?;
        kubectl.remove_pod()?;
        let evidence = evidence(&vm)?;
        vm.wait_shutdown(Deadline::after(END)).context("wait for the floor's end")?;
        let mut seen = followed.seen;
        seen.push(pod);
        Ok(Boot { seen, evidence, cluster: floor::plan().cluster })
    }

    fn machine(&self, data: &Path) -> Machine {
        let disk = |path: &Path, serial: &str| Disk {
            content: Content::Raw(path.to_owned()),
            serial: serial.to_owned(),
            cache: Cache::Unsafe,
        };
        let forwards = [KUBERNETES_API_PORT, floor::EVIDENCE_PORT].map(Forward::tcp);
        Machine {
            name: "floor".to_owned(),
            boot: Board::Direct(self.kernel.clone()),
            cpus: CPUS,
            memory_mib: MEMORY,
            disks: vec![disk(&self.root, "root"), disk(data, "data")],
            tpm: None,
            nics: vec![Nic { mac: Mac::numbered(1), link: Link::User(forwards.to_vec()) }],
            fw_cfg: vec![],
            watchdog: Watchdog::Absent,
            on_reset: OnReset::Exit,
            clock: Clock::OfHost,
        }
    }
}

/// Meaning of a line of the floor's console.
fn told(line: &str) -> Option<Told> {
    BootMilestone::ALL.into_iter().find_map(|milestone| Some(Told::Reached(milestone, milestone.of_line(line)?)))
}

fn evidence(vm: &Vm) -> Result<Evidence> {
    let address = vm.forward(floor::EVIDENCE_PORT).context("the floor's evidence has no port here")?;
    let mut stream = TcpStream::connect(address).context("ask the floor for its evidence")?;
    stream.set_read_timeout(Some(END)).context("ask the floor for its evidence")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("read the floor's evidence")?;
    serde_json::from_str(&text).context("parse the floor's evidence")
}

#[expect(clippy::disallowed_methods, reason = "certificates begin now; nothing is decided by it")]
fn now() -> UnixTime {
    UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
