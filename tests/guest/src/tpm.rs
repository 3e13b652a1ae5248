//! Commands of root to the machine's TPM, past PID 1: for the secret of the seal, and to keep the disk shut for good.

mod bare;

use std::fs;
use std::io;
use std::path::Path;

use attest::{ObjectName, SealedObject};
use keys::binding::{Binding, TpmObject};
use keys::seal::Clear;
use keys::two_slot::{File, TwoSlotFile};
use model::Chain;

use self::bare::Bus;
use crate::say;

/// Where PID 1 mounts the ESP.
const ESP: &str = "/run/cairn/esp";

/// Asks the TPM, with the seal in hand, for its secret: by the policy and by an empty password. Fails when it is given out.
pub(super) fn unseal() -> io::Result<()> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    say(&format!("PCR 11: {}", hex(&Bus::open()?.pcr_11()?)));
    for object in objects()? {
        let storage_key = ObjectName::try_from(&object.storage_key_name[..]).map_err(io::Error::other)?;
        let (public, private) = (object.public.clone(), object.private.clone());
        // By the policy, as PID 1 does it.
        let opened = attest::Tpm::new(Bus::open()?)
            .unseal(&SealedObject { public, private, storage_key }, object.pcrs)
            .map(|_secret| io::Error::other("the TPM gave it out"));
        match opened {
            Err(refused) => say(&format!("Seal by its policy: {}", Chain(&refused))),
            Ok(given) => return Err(given),
        }
        match Bus::open()?.unseal(&object)? {
            0 => return Err(io::Error::other("the TPM gave it out for an empty password")),
            code => say(&format!("Seal by an empty password: {code:#x}")),
        }
    }
    Ok(())
}

/// The TPM objects in both slots of the seal.
fn objects() -> io::Result<Vec<TpmObject>> {
    let [first, second] = File::Seal.paths();
    let slot = |path: &str| fs::read(Path::new(ESP).join(path));
    let file = TwoSlotFile::read(File::Seal, [&slot(first)?, &slot(second)?]);
    let object = |clear: &[u8]| match Clear::decode(clear).map_err(io::Error::other)?.binding {
        Binding::Tpm(object) => Ok(object),
        Binding::Unprotected(_) => Err(io::Error::other("it needs no TPM")),
    };
    file.newest_first.iter().map(|slot| object(slot.clear())).collect()
}

/// Everything by which the TPM could be made to keep the disk shut for good, and what it answers.
pub(super) fn attack() -> io::Result<()> {
    // Through this, root can ask some firmware to clear the TPM before anything of ours runs.
    say(&format!("a way to ask the firmware: {}", Path::new("/sys/class/tpm/tpm0/ppi").try_exists()?));
    Bus::open()?.attacks()?.into_iter().for_each(|(attack, code)| say(&format!("{attack}: {code:#x}")));
    Ok(())
}
