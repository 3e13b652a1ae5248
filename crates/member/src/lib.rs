//! A member's life: what the cluster says that a machine is to be, what of it is there, and the effects that are the difference. After a
//! cut or a panic it is found anew, and what is right causes no effect.
//!
//! ```text
//!   facts ─ start ─► Life ◄─ Event ── words of coordinators, own records, the owner, ends of effects
//!                      └─ Effect ─────► connections, files, units, what the APIs show
//!   source: whom it hears  ·  belief: which word it takes  ·  keep: which file is due  ·  role: the next step
//!   copy: whether its records are kept up  ·  shares: what of the cold-start key lies on the ESP  ·  duties: what a coordinator does for the others
//!   defragment: which member of etcd has its turn  ·  restore: the next step of one  ·  kubernetes: what of Kubernetes runs
//! ```
//!
//! # Invariants
//! - Desired state is durable before it is obeyed: `tests::desired_state_is_kept_before_it_is_obeyed`.
//! - One coordinator that lies erases nothing: `tests::one_voice_erases_nothing`.
//! - A lower version changes nothing: `tests::a_lower_version_is_refused_and_its_teller_left`.
//! - A recovery found at a start is done only where nobody who answers has a leader:
//!   `tests::a_note_of_an_earlier_boot_is_dropped_where_others_lead`.
//! - An etcd that has taken the others out does not go on uncounted: `tests::an_etcd_that_went_on_alone_is_put_aside_where_others_lead`.
//! - The first records are written before a coordinator does anything else: `duties::tests::first_records_come_before_all_else`.
//! - A control plane is said to have stopped for a restore only once none of it runs or is to:
//!   `restore::tests::a_control_plane_is_said_to_have_stopped_once_it_has`.
//! - A share is acknowledged only once it lies on the ESP: `shares::tests::a_share_is_durable_before_it_is_acknowledged`.

mod announcement;
mod belief;
mod copy;
mod defragment;
mod duties;
mod effect;
mod keep;
mod kubernetes;
mod life;
mod restore;
mod role;
mod shares;
mod source;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use announcement::{Announcement, is_news};
pub use belief::Disbelief;
pub use effect::{
    Effect, EffectKind, EffectOutcome, EtcdStart, Event, Face, KeptFile, OwnRecords, OwnRequest, OwnerReason, Part,
    ShareReason,
};
pub use life::{Life, LifeFacts};
pub use role::{AGAIN, RecoveryNote, RoleFacts};
pub use source::{LAPSE, SILENT, VpnPlace};
