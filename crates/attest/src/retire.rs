//! Retirement of the TPM: whatever runs after the cap is left nothing that could lose a disk for good.
//!
//! Hierarchies have no password, so root could clear the TPM, or give the owner hierarchy a password that no later boot
//! knows; either way no seal opens again. A hierarchy that is closed takes no command, whoever sends it, and opens at the
//! next reset of the TPM. TPM2_Clear stays forbidden beyond that, and only the platform hierarchy, which firmware has to
//! itself before it starts anything, can allow it again.
//!
//! ```text
//!   TPM2_ClearControl(off) ─► endorsement ─► owner, with the storage key ─► platform, where firmware left it open
//! ```
//! The lockout hierarchy cannot be closed. With TPM2_Clear forbidden, what root can do there harms no object of ours:
//! they are not subject to the lockout.

use std::error::Error;

use crate::channel::{Call, TpmError, Transport};
use crate::code::{CommandCode, ResponseCode, capability, handle};
use crate::command::Entity;
use crate::response;
use crate::session::Purpose;
use crate::tpm::{Tpm, malformed};
use crate::wire::Writer;

/// Part of the TPM that could not be closed, because somebody gave it a password or a lock of its own: firmware, or the
/// machine's former owner. It is closed to all others, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedPart {
    /// TPM2_Clear is still allowed, to whoever knows the lockout password.
    Clear,
    /// The endorsement hierarchy.
    Endorsement,
    /// The platform hierarchy. Firmware gives it a password before it starts anything.
    Platform,
}

/// `TPMI_YES_NO` (part 2, section 9.2).
const NO: u8 = 0;
const YES: u8 = 1;

impl<T: Transport> Tpm<T> {
    /// Forbids TPM2_Clear and closes the hierarchies. Until the TPM is reset nothing can be made, sealed or opened under
    /// them, so nothing is left to ask of this TPM. What it answers is what others guard already.
    ///
    /// # Errors
    /// [`TpmError`]; then root could lose the disk, and nothing else may run.
    pub fn retire(mut self) -> Result<Vec<GuardedPart>, TpmError<T::Error>> {
        let permanent = self.property(capability::PERMANENT)?;
        let started = self.property(capability::STARTUP_CLEAR)?;
        let mut guarded = Vec::new();
        if permanent & capability::DISABLE_CLEAR == 0 {
            // A wrong password would lock the lockout hierarchy for hours, so none is tried where there is one.
            let password = permanent & capability::LOCKOUT_AUTH_SET != 0;
            if password || !granted(self.forbid_clear())? {
                guarded.push(GuardedPart::Clear);
            }
        }
        if started & capability::ENDORSEMENT_ENABLED != 0 && !granted(self.close_hierarchy(handle::ENDORSEMENT))? {
            guarded.push(GuardedPart::Endorsement);
        }
        self.close_hierarchy(handle::OWNER)?;
        // Last: a refusal ends the session, and without the owner hierarchy there is no other.
        if started & capability::PLATFORM_ENABLED != 0 && !granted(self.close_hierarchy(handle::PLATFORM))? {
            guarded.push(GuardedPart::Platform);
        }
        Ok(guarded)
    }

    /// By the lockout hierarchy, which may forbid and not allow.
    fn forbid_clear(&mut self) -> Result<(), TpmError<T::Error>> {
        let code = CommandCode::ClearControl;
        self.in_channel(|transport, channel| {
            let (entities, parameters) = ([Entity::Fixed(handle::LOCKOUT)], Writer::new().u8(YES));
            let call = Call { code, entities: &entities, policy: None, purpose: Purpose::Authorise, parameters };
            let done = channel.call(transport, call)?;
            response::nothing(&done.parameters).map_err(malformed(code))
        })
    }

    /// By its own, empty password, until the next reset.
    fn close_hierarchy(&mut self, hierarchy: u32) -> Result<(), TpmError<T::Error>> {
        let code = CommandCode::HierarchyControl;
        self.in_channel(|transport, channel| {
            let (entities, parameters) = ([Entity::Fixed(hierarchy)], Writer::new().u32(hierarchy).u8(NO));
            let call = Call { code, entities: &entities, policy: None, purpose: Purpose::Authorise, parameters };
            let done = channel.call(transport, call)?;
            if hierarchy == handle::OWNER {
                channel.key_is_gone();
            }
            response::nothing(&done.parameters).map_err(malformed(code))
        })
    }

    fn property(&mut self, property: u32) -> Result<u32, TpmError<T::Error>> {
        let code = CommandCode::GetCapability;
        self.in_channel(|transport, channel| {
            let parameters = Writer::new().u32(capability::TPM_PROPERTIES).u32(property).u32(1);
            let call = Call { code, entities: &[], policy: None, purpose: Purpose::Audit, parameters };
            let done = channel.call(transport, call)?;
            response::property(property, &done.parameters).map_err(malformed(code))
        })
    }
}

/// Whether it was done; not, where the empty password is not the password. Every other failure stays one.
fn granted<E: Error>(done: Result<(), TpmError<E>>) -> Result<bool, TpmError<E>> {
    match done {
        Ok(()) => Ok(true),
        Err(error) => match error.refusal().map(ResponseCode::error) {
            Some(ResponseCode::BAD_AUTH | ResponseCode::AUTH_FAIL | ResponseCode::LOCKOUT) => Ok(false),
            _ => Err(error), // as the TPM or the device told it
        },
    }
}
