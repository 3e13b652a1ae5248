//! Numbers of the TPM specification that this crate speaks: commands, return codes, handles, algorithms.
//!
//! Holds no behaviour beyond naming them.

use std::fmt;

/// The commands this crate sends (part 2, table 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CommandCode {
    /// Closes a hierarchy until the TPM is reset.
    HierarchyControl = 0x121,
    /// Forbids TPM2_Clear, until the platform's authorisation allows it again.
    ClearControl = 0x127,
    /// Makes the storage key from the owner hierarchy's seed.
    CreatePrimary = 0x131,
    /// Makes the sealed object.
    Create = 0x153,
    /// Loads the sealed object.
    Load = 0x157,
    /// Opens the sealed object.
    Unseal = 0x15e,
    /// Forgets a key, an object or a session.
    FlushContext = 0x165,
    /// Starts the salted session or a policy session.
    StartAuthSession = 0x176,
    /// Says what the TPM is and in which state.
    GetCapability = 0x17a,
    /// Random bytes.
    GetRandom = 0x17b,
    /// Reads PCRs.
    PcrRead = 0x17e,
    /// Binds a policy session to PCRs.
    PolicyPcr = 0x17f,
    /// Extends a PCR.
    PcrExtend = 0x182,
}

impl CommandCode {
    /// The number on the wire.
    #[must_use]
    pub const fn value(self) -> u32 {
        self as u32
    }

    /// Whether its answer carries a handle before the parameters (part 3, the command's table).
    #[must_use]
    pub(crate) const fn answers_with_handle(self) -> bool {
        matches!(self, Self::CreatePrimary | Self::Load | Self::StartAuthSession)
    }
}

impl fmt::Display for CommandCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TPM2_{self:?}")
    }
}

/// A return code other than success (part 2, section 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseCode(pub u32);

/// Format one: bits 8 to 11 and bit 6 say which handle, session or parameter is meant.
const FORMAT_ONE: u32 = 0x080;
const FORMAT_ONE_ERROR: u32 = 0x0bf;
/// Format one: the number in bits 8 to 11 counts parameters.
const PARAMETER: u32 = 0x040;

impl ResponseCode {
    pub(crate) const AUTH_FAIL: Self = Self(0x08e);
    pub(crate) const POLICY_FAIL: Self = Self(0x09d);
    pub(crate) const BAD_AUTH: Self = Self(0x0a2);
    pub(crate) const PCR_CHANGED: Self = Self(0x128);
    pub(crate) const LOCKOUT: Self = Self(0x921);

    /// The code without the number of the parameter, handle or session it complains about.
    #[must_use]
    pub const fn error(self) -> Self {
        if self.0 & !0xfff == 0 && self.0 & FORMAT_ONE != 0 { Self(self.0 & FORMAT_ONE_ERROR) } else { self }
    }

    /// Whether the TPM complains about a parameter, that is about bytes it was given.
    pub(crate) const fn is_about_parameter(self) -> bool {
        self.0 & !0xfff == 0 && self.0 & FORMAT_ONE != 0 && self.0 & PARAMETER != 0
    }

    /// In words, for the codes a person may meet.
    const fn words(self) -> Option<&'static str> {
        Some(match self.error().0 {
            0x085 => "hierarchy disabled",
            0x08b => "no such handle",
            0x08e => "authorisation failed",
            0x09d => "policy not satisfied",
            0x09f => "integrity check failed",
            0x0a2 => "authorisation failed, the hierarchy may have a password",
            0x100 => "not started",
            0x101 => "failure mode",
            0x128 => "PCRs changed since the policy was checked",
            0x12f => "this object has no password",
            0x902 => "no room for another object",
            0x903 => "no room for another session",
            0x921 => "locked out",
            0x922 => "busy",
            // The rest are told by number: they mean a defect here or in the TPM, not something a person can mend.
            _ => return None,
        })
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => write!(f, "{words} ({:#05x})", self.0),
            None => write!(f, "{:#05x}", self.0),
        }
    }
}

/// Tags of commands and answers (part 2, section 6.9).
pub(crate) mod tag {
    pub(crate) const NO_SESSIONS: u16 = 0x8001;
    pub(crate) const SESSIONS: u16 = 0x8002;
}

/// Handles that are always there (part 2, section 7.4).
pub(crate) mod handle {
    pub(crate) const OWNER: u32 = 0x4000_0001;
    pub(crate) const NULL: u32 = 0x4000_0007;
    pub(crate) const PASSWORD: u32 = 0x4000_0009;
    pub(crate) const LOCKOUT: u32 = 0x4000_000a;
    pub(crate) const ENDORSEMENT: u32 = 0x4000_000b;
    pub(crate) const PLATFORM: u32 = 0x4000_000c;
}

/// Capabilities that TPM2_GetCapability is asked for (part 2, sections 6.12, 6.13, 8.6 and 8.7).
pub(crate) mod capability {
    pub(crate) const TPM_PROPERTIES: u32 = 6;
    /// State that outlives a reset.
    pub(crate) const PERMANENT: u32 = 0x200;
    pub(crate) const LOCKOUT_AUTH_SET: u32 = 1 << 2;
    pub(crate) const DISABLE_CLEAR: u32 = 1 << 8;
    /// State that begins anew at each reset.
    pub(crate) const STARTUP_CLEAR: u32 = 0x201;
    pub(crate) const PLATFORM_ENABLED: u32 = 1 << 0;
    pub(crate) const ENDORSEMENT_ENABLED: u32 = 1 << 2;
}

/// Algorithms (part 2, section 6.3) and the one curve (section 6.4).
pub(crate) mod algorithm {
    pub(crate) const AES: u16 = 0x0006;
    pub(crate) const KEYED_HASH: u16 = 0x0008;
    pub(crate) const SHA256: u16 = 0x000b;
    pub(crate) const NULL: u16 = 0x0010;
    pub(crate) const ECC: u16 = 0x0023;
    pub(crate) const CFB: u16 = 0x0043;
    pub(crate) const P256: u16 = 0x0003;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_known_whatever_it_complains_about() {
        assert_eq!(ResponseCode(0x99d).error(), ResponseCode::POLICY_FAIL);
        assert_eq!(ResponseCode(0x1df).to_string(), "integrity check failed (0x1df)");
        assert!(ResponseCode(0x1df).is_about_parameter());
        assert!(!ResponseCode(0x99d).is_about_parameter());
        assert_eq!(ResponseCode(0x921).error(), ResponseCode::LOCKOUT);
        assert_eq!(ResponseCode(0xb0101).to_string(), "0xb0101", "a layer above the TPM is not the TPM");
    }

    /// The numbers of part 2, section 6.6.3, as a TPM says them: with the parameter, handle or session it means.
    #[test]
    fn what_a_person_may_meet_is_told_in_words() {
        for (code, words) in [
            (0x185, "hierarchy disabled"),
            (0x18b, "no such handle"),
            (0x98e, "authorisation failed"),
            (0x99d, "policy not satisfied"),
            (0x1df, "integrity check failed"),
            (0x9a2, "authorisation failed, the hierarchy may have a password"),
            (0x100, "not started"),
            (0x101, "failure mode"),
            (0x128, "PCRs changed since the policy was checked"),
            (0x12f, "this object has no password"),
            (0x902, "no room for another object"),
            (0x903, "no room for another session"),
            (0x921, "locked out"),
            (0x922, "busy"),
        ] {
            assert_eq!(ResponseCode(code).to_string(), format!("{words} ({code:#05x})"));
        }
        assert_eq!(ResponseCode(0x120).to_string(), "0x120", "the rest by number");
    }
}
