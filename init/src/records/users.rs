//! etcd's users: made once, before anybody but PID 1 reaches it; from then on it asks who calls. That this was done is a file
//! on DATA beside etcd's own, so that at later boots nobody has to wait for it.

use std::io;
use std::path::Path;

use etcd::wire::authpb::permission::Type;
use etcd::wire::authpb::{Permission, UserAddOptions};
use etcd::wire::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest,
};
use services::{ETCD_USERS, EtcdRights, EtcdUsers};

use super::kept_snapshot;
use super::link::{Link, NoAnswer, in_time};
use super::recovery::NOTE;
use super::revocation::REVOKED;
use crate::runtime::{durable, tasks};
use crate::storage::DATA;

/// The role that may do everything; etcd has the name fixed, and the role by itself.
const ALL: &str = "root";
/// Says that the users are made. It lies beside etcd's data: who loses that loses this.
const MADE: &str = "etcd-users";
/// Name of the file of the electorate: ids of 16 bytes each, in order.
pub(super) const ELECTORATE: &str = "etcd-electorate";
/// etcd's own.
const ETCD: &str = "etcd";
/// Data of an etcd that let go of this machine, behind a promotion that began another.
const ASIDE: &str = "etcd-aside";
/// Log that etcd has written before it serves anybody.
const LOG: &str = "etcd/member/wal";

/// Why the users are not made, or not known to be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// etcd does not do it.
    #[error("make etcd's users")]
    Etcd(#[from] NoAnswer),
    /// Whether it was done, or whether etcd has begun, cannot be seen.
    #[error("look for `{DATA}/{0}`")]
    Unseen(&'static str, #[source] io::Error),
    /// A note beside etcd's data cannot be written.
    #[error("write `{DATA}/{0}`")]
    Note(&'static str, #[source] io::Error),
}

/// Whether the users were made, at this boot or before.
///
/// # Errors
/// [`Error::Unseen`].
pub(crate) fn known() -> Result<EtcdUsers, Error> {
    let made = durable::exists(&Path::new(DATA).join(MADE)).map_err(|error| Error::Unseen(MADE, error))?;
    Ok(if made { EtcdUsers::Known } else { EtcdUsers::Unknown })
}

/// Whether etcd has begun here: it has a log of its own, and asks nobody any more who the members are (`bootstrap`,
/// server/etcdserver/bootstrap.go; the log appears at once and whole).
///
/// # Errors
/// [`Error::Unseen`].
pub(crate) fn has_begun() -> Result<bool, Error> {
    durable::exists(&Path::new(DATA).join(LOG)).map_err(|error| Error::Unseen(LOG, error))
}

/// Notes, before etcd runs here as a further member, that the cluster has made them: its etcd asks who calls, wherever it runs.
pub(super) async fn joins() -> Result<(), Error> {
    tasks::blocking(|| begin(Path::new(DATA))).await.map_err(|error| Error::Note(MADE, error))
}

/// Erases what etcd has here, and all notes with it.
pub(super) async fn erase() -> io::Result<()> {
    tasks::blocking(|| end(Path::new(DATA))).await
}

/// Erases all notes of etcd, and puts its data in the place of what was put aside before.
pub(super) async fn put_aside() -> io::Result<()> {
    tasks::blocking(|| set_aside(Path::new(DATA))).await
}

/// Removes the notes before the data that they describe, but for that of a recovery: without it, data that has taken all other
/// members out would be taken for theirs. Without data, what was put aside before stays.
fn set_aside(data: &Path) -> io::Result<()> {
    [MADE, REVOKED, ELECTORATE].into_iter().try_for_each(|name| durable::remove(&data.join(name)))?;
    if durable::exists(&data.join(ETCD))? {
        durable::remove(&data.join(ASIDE))?;
        durable::rename(data, ETCD, ASIDE)?;
    }
    durable::remove(&data.join(NOTE))
}

/// Notes that the users are made, after the note of a recovery is gone: with it the etcd that joins would take the others out.
fn begin(data: &Path) -> io::Result<()> {
    durable::remove(&data.join(NOTE))?;
    durable::replace(data, MADE, &[])
}

/// Removes the note of a recovery before the data that it describes, and the other notes after it, and a snapshot that was to go into etcd.
fn end(data: &Path) -> io::Result<()> {
    let notes = [NOTE, ETCD, MADE, REVOKED, ELECTORATE, ASIDE];
    notes.into_iter().try_for_each(|name| durable::remove(&data.join(name)))?;
    kept_snapshot::remove_from(data, None)
}

/// Makes them, whatever of it was done before, and notes it.
pub(super) async fn make(link: &Link) -> Result<(), Error> {
    let mut etcd = link.users();
    let status = in_time(etcd.auth_status(AuthStatusRequest {})).await?;
    if !status.enabled {
        for user in ETCD_USERS {
            let name = user.name.to_owned();
            let role = match user.may {
                EtcdRights::All => ALL.to_owned(),
                EtcdRights::Keys(prefix) => {
                    unless_there(in_time(etcd.role_add(AuthRoleAddRequest { name: name.clone() })).await)?;
                    let perm = Permission {
                        perm_type: Type::Readwrite.into(),
                        key: prefix.into(),
                        range_end: etcd::behind(prefix),
                    };
                    let grant = AuthRoleGrantPermissionRequest { name: name.clone(), perm: Some(perm) };
                    in_time(etcd.role_grant_permission(grant)).await?;
                    name.clone()
                }
            };
            let by_certificate = Some(UserAddOptions { no_password: true });
            let add = AuthUserAddRequest { name: name.clone(), password: String::new(), options: by_certificate };
            unless_there(in_time(etcd.user_add(add)).await)?;
            in_time(etcd.user_grant_role(AuthUserGrantRoleRequest { user: name, role })).await?;
        }
        in_time(etcd.auth_enable(AuthEnableRequest {})).await?;
        tracing::info!("etcd asks who calls");
    }
    tasks::blocking(|| durable::replace(Path::new(DATA), MADE, &[])).await.map_err(|error| Error::Note(MADE, error))
}

/// Takes what exists already for made: an attempt before this one has made it.
fn unless_there<T>(made: Result<T, NoAnswer>) -> Result<(), NoAnswer> {
    match made {
        Err(NoAnswer::Refused(status)) if status.message().ends_with("already exists") => Ok(()),
        made => made.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Proves: K6
    #[test]
    fn no_later_etcd_recovers_what_was_noted_before() {
        let data = tempfile::tempdir().expect("a place for files");
        let note = || fs::write(data.path().join(NOTE), [7; 32]).expect("written");
        let there = || {
            [NOTE, ETCD, MADE, REVOKED, ELECTORATE].map(|name| durable::exists(&data.path().join(name)).expect("seen"))
        };
        note();
        begin(data.path()).expect("noted");
        assert_eq!(there(), [false, false, true, false, false]);
        note();
        fs::create_dir_all(data.path().join(ETCD).join("member")).expect("made");
        for name in [REVOKED, ELECTORATE] {
            fs::write(data.path().join(name), [7; 32]).expect("written");
        }
        assert_eq!(there(), [true; 5]);
        set_aside(data.path()).expect("put aside");
        let aside = || durable::exists(&data.path().join(ASIDE).join("member")).expect("seen");
        assert_eq!((there(), aside()), ([false; 5], true));
        set_aside(data.path()).expect("nothing is left to do");
        assert!(aside(), "what was put aside stays");
        end(data.path()).expect("erased");
        assert_eq!((there(), aside()), ([false; 5], false));
    }
}
