//! The API of a running machine without its port, for tests: methods, owners, and callers of any kind.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::State;
use cluster::key::Key;
use cluster::record::{UnixSeconds, UserRecord, UserTerms};
use cluster::state::KeyValue;
use cluster::users::UsersOfNow;
use model::{OwnerPubKey, UserPubKey};
use pki::client_auth::{Owners, nameless_certificate, owner_certificate, server_config, user_certificate};
use pki::{PrivateKey, TlsIdentity};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::sync::{mpsc, watch};

use super::access::{Gate, Guarded};
use super::public::{Context, PublicMethods};
use super::session::Origin;
use super::{Callers, Front, Roster};
use crate::enrolment::Ways;
use crate::facts::Facts;
use crate::machine::kernel::Boot;
use crate::machine::power::PowerRequest;
use crate::runtime::child::Children;
use crate::runtime::clock;
use crate::runtime::log;
use crate::runtime::tls::Clock;
use crate::shown::board::Board;

/// A machine that runs, with one owner.
pub(super) struct Machine {
    pub(super) guarded: Arc<Guarded>,
    pub(super) facts: Facts,
    pub(super) context: Arc<Context>,
    pub(super) power: mpsc::Receiver<PowerRequest>,
    pub(super) front: watch::Sender<Front>,
    pub(super) owner: PrivateKey,
}

impl Machine {
    /// Starts the machine, of a release; needs a runtime.
    pub(super) fn running() -> Self {
        Self::of(api::Profile::Release)
    }

    /// The same of a profile.
    pub(super) fn of(profile: api::Profile) -> Self {
        log::install(Vec::new());
        let (facts, power_on) = Facts::new(Boot { profile, ..Boot::fixture() });
        facts.update(|now| now.prefixes = Some(model::Prefixes::of(model::VPN_PREFIX)));
        let (board, shown) = Board::new(facts.clone());
        board.settled(&power_on.opens().runs(), "");
        let (context, power) = Context::new(shown, &Children::default(), Ways::of_nobody(), pki::SpkiPin([0; 32]));
        // Owners of a cluster are known by Ed25519 keys.
        let owner = PrivateKey::ed25519(&model::Secret::take(&mut [0x0e; 32])).expect("a key");
        let front = watch::Sender::new(front(std::slice::from_ref(&owner)));
        let methods = PublicMethods::new(context.clone());
        Self { guarded: Guarded::new(Box::new(methods)), facts, context, power, front, owner }
    }

    /// From now on these are the owners.
    pub(super) fn owned_by(&self, owners: &[PrivateKey]) {
        self.front.send_replace(front(owners));
    }

    /// From now on these are the users.
    pub(super) fn used_by(&self, users: Roster) {
        self.front.send_modify(|front| front.callers.know(users));
    }

    /// A connection as its requests see it.
    pub(super) fn gate(&self, origin: Origin) -> Gate {
        let who = origin.who(&self.front.borrow().callers).expect("an owner or a stranger");
        let visit = watch::Sender::new(door::Visit::new(who.caller(), clock::now()));
        Gate::new(self.guarded.clone(), self.front.subscribe(), origin, Arc::new(visit))
    }
}

/// Origin of a connection by whoever holds `key`, or by nobody in particular.
pub(super) fn origin(key: Option<&PrivateKey>, peer: &str) -> Origin {
    let shown: Vec<CertificateDer<'static>> = key.map(certificate).into_iter().collect();
    let peer: SocketAddr = peer.parse().expect("an address");
    Origin { shown: shown.into(), peer, exporter: [0; 32], redeem: [0; 32], activation: [0; 32], tries: Arc::default() }
}

/// The same of whoever calls itself a user.
pub(super) fn user_origin(key: &PrivateKey, peer: &str) -> Origin {
    Origin { shown: [user_certificate(key).expect("a certificate")].into(), ..origin(None, peer) }
}

/// Users of these names, each with this key.
pub(super) fn roster(users: &[(&str, &PrivateKey)]) -> Roster {
    let record = |(name, key): &(&str, &PrivateKey)| {
        let keys = [UserPubKey(key.public().as_ed25519().expect("it is one"))].into();
        let terms = UserTerms { name: name.parse().expect("a name"), keys, expires: None };
        let record = UserRecord { terms, added_by: OwnerPubKey([1; 32]), added_at: UnixSeconds(1) };
        KeyValue { key: Key::User(record.terms.name).bytes(), value: record.encode(), mod_revision: 1 }
    };
    let state = State::read(users.iter().map(record)).expect("our own");
    Roster::Known(Arc::new(UsersOfNow::of(&state, UnixSeconds(1))))
}

/// TLS of who calls itself a user.
pub(super) fn user_client(key: &PrivateKey) -> Arc<ClientConfig> {
    client_showing(Some((key, user_certificate(key).expect("a certificate"))))
}

/// The other end's TLS.
pub(super) fn client(key: Option<&PrivateKey>) -> Arc<ClientConfig> {
    client_showing(key.map(|key| (key, certificate(key))))
}

fn client_showing(shown: Option<(&PrivateKey, CertificateDer<'static>)>) -> Arc<ClientConfig> {
    let mut tls = pki::danger::first_contact(Arc::new(Clock)).expect("a configuration");
    if let Some((key, certificate)) = shown {
        let private = PrivatePkcs8KeyDer::from(key.to_pkcs8().expect("encodes").expose().to_vec()).into();
        let shown = CertifiedKey::from_der(vec![certificate], private, tls.crypto_provider()).expect("they fit");
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown));
    }
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(tls)
}

fn certificate(key: &PrivateKey) -> CertificateDer<'static> {
    owner_certificate(key).expect("a certificate")
}

fn front(owners: &[PrivateKey]) -> Front {
    let owners = Owners::new(owners.iter().map(|owner| owner.public().clone()).collect());
    let key = PrivateKey::generate().expect("a key");
    let nameless = TlsIdentity { chain: vec![nameless_certificate(&key).expect("a certificate")], key: &key };
    let mut tls = server_config(nameless, None, owners.clone(), Arc::new(Clock)).expect("they fit");
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Front { tls: Arc::new(tls), callers: Callers::Any(owners, Roster::default()) }
}
