//! Secrets: fixed-size keys that are wiped when dropped, never printed, never copied by accident.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes. Wiped on drop; `Debug` shows the size only; comparison is left to constant-time code elsewhere.
pub struct Secret<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Secret<N> {
    /// Takes the bytes and wipes the place they came from.
    pub fn take(bytes: &mut [u8; N]) -> Self {
        let secret = Self(Box::new(*bytes));
        bytes.zeroize();
        secret
    }

    /// A zeroed secret filled in place by `fill`, so that the bytes never lie on the caller's stack.
    ///
    /// # Errors
    /// What `fill` returns; the half-filled bytes are wiped.
    pub fn fill<E>(fill: impl FnOnce(&mut [u8; N]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new([0; N]));
        fill(&mut secret.0)?;
        Ok(secret)
    }

    /// The bytes. Every use of a secret's content greps as `expose`.
    #[must_use]
    pub fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// A second copy, for the few places where two owners need the same key.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> ZeroizeOnDrop for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({N} bytes)")
    }
}

macro_rules! key {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub Secret<32>);

        impl $name {
            /// Bytes of the secret.
            #[must_use]
            pub fn expose(&self) -> &[u8; 32] {
                self.0.expose()
            }
        }
    )*};
}

key! {
    /// The machine's half of what opens the data partition; lives in the seal.
    LocalKey;
    /// The cluster's half, one per disk and key generation.
    ClusterKey;
    /// The random key of one data partition; dm-crypt and dm-integrity keys derive from it.
    VolumeKey;
    /// Secret that every cluster key of a cluster derives from.
    MasterSecret;
    /// The 32 bytes the TPM object of a seal holds; the seal's body is encrypted under it.
    SealRoot;
    /// Secret that the CLI and the machine share until the owner's first authenticated call.
    FirstContact;
    /// WireGuard's private key (X25519) of a machine.
    VpnPrivKey;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_secret_wipes_its_source_and_prints_nothing() {
        let mut bytes = [7u8; 32];
        let key = LocalKey(Secret::take(&mut bytes));
        assert_eq!(bytes, [0; 32]);
        assert_eq!(key.expose(), &[7; 32]);
        assert_eq!(format!("{key:?}"), "LocalKey(Secret(32 bytes))");
    }
}
