//! etcd's users: made once, before anybody but PID 1 reaches it; from then on it asks who calls. That this was done is a file
//! on DATA beside etcd's own, so that at later boots nobody has to wait for it.

use std::fs::File;
use std::io;
use std::path::Path;

use etcd::wire::authpb::permission::Type;
use etcd::wire::authpb::{Permission, UserAddOptions};
use etcd::wire::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest,
};
use kube::{ETCD_USERS, EtcdRights, EtcdUsers};

use super::link::{Link, NoAnswer, in_time};
use super::recovery::NOTE;
use crate::runtime::{durable, tasks};

/// The role that may do everything; etcd has the name fixed, and the role by itself.
const ALL: &str = "root";
/// Says that the users are made. It goes with etcd's data: who loses that loses this.
const MADE: &str = "/data/etcd-users";
/// etcd's own.
const ETCD: &str = "/data/etcd";

/// Why the users are not made, or not known to be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// etcd does not do it.
    #[error("make etcd's users")]
    Etcd(#[from] NoAnswer),
    /// It was done, and cannot be noted.
    #[error("write `{MADE}`")]
    Note(#[source] io::Error),
}

/// Whether the users were made, at this boot or before.
pub(crate) fn known() -> EtcdUsers {
    if Path::new(MADE).exists() { EtcdUsers::Known } else { EtcdUsers::Unknown }
}

/// Notes that the cluster has made them: its etcd asks who calls, wherever it runs.
pub(super) async fn made() -> Result<(), Error> {
    tasks::blocking(note).await.map_err(Error::Note)
}

/// Erases what etcd has here, and all notes with it.
pub(super) async fn erase() -> io::Result<()> {
    tasks::blocking(|| [ETCD, MADE, NOTE].into_iter().try_for_each(|path| durable::remove(Path::new(path)))).await
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
    made().await
}

/// What an attempt before this one has made is there.
fn unless_there<T>(made: Result<T, NoAnswer>) -> Result<(), NoAnswer> {
    match made {
        Err(NoAnswer::Refused(status)) if status.message().ends_with("already exists") => Ok(()),
        made => made.map(drop),
    }
}

fn note() -> io::Result<()> {
    File::create(MADE)?.sync_all()?;
    File::open("/data")?.sync_all()
}
