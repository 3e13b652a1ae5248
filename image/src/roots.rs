//! Root certificates of the public web, by which containerd knows registries: Mozilla's, as one PEM bundle. It must hold no
//! certificate that Mozilla does not vouch for.

use pki::certificate_pem;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// All of them in PEM, in the order in which Mozilla's list has them.
pub(crate) fn bundle() -> String {
    TLS_SERVER_ROOT_CERTS.iter().map(certificate_pem).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pki::judge_authority;

    use super::*;

    /// Proves: W5
    #[test]
    fn the_bundle_holds_each_of_mozillas_roots_once() {
        let bundle = bundle();
        let marks = |mark: &str| bundle.lines().filter(|line| *line == mark).count();
        let counted = [marks("-----BEGIN CERTIFICATE-----"), marks("-----END CERTIFICATE-----")];
        let each: BTreeSet<&[u8]> = TLS_SERVER_ROOT_CERTS.iter().map(AsRef::as_ref).collect();
        assert!(each.len() > 100 && counted == [each.len(); 2], "{counted:?} of {}", each.len());
        assert!(TLS_SERVER_ROOT_CERTS.iter().all(|certificate| judge_authority(certificate).is_ok()));
    }
}
