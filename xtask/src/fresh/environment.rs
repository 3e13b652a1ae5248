//! The environment of a command in the fresh root: a clean one, with what package clients must know of this network and
//! nothing else of the person's.

use std::path::Path;

/// Variables that go in: how to speak and where, and which certificates are believed.
const KEPT: &[&str] = &["CI", "LANG", "TERM", "CARGO_HOME", "XDG_CACHE_HOME"];
/// Variables that name a file of certificates; the file goes in, too.
const CERTIFICATES: &[&str] = &["SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"];
/// Beginnings of variables that configure Go or cargo's downloads.
const KEPT_PREFIXES: &[&str] =
    &["GO", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRY_", "CARGO_REGISTRIES_", "CARGO_SOURCE_"];
/// Ending of variables that name a proxy, in either case.
const PROXY: &str = "_proxy";
/// Ending of variables that are a person's secret: nobody publishes from in there.
const SECRET: &str = "_TOKEN";
/// Behind the folders of Rust and Go.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where the toolchains' programs are.
pub(super) struct Toolchains<'a> {
    pub(super) rust: &'a Path,
    pub(super) go: &'a Path,
}

/// The variables inside, given those outside.
pub(super) fn inside(
    outside: impl Iterator<Item = (String, String)>,
    home: &str,
    toolchains: &Toolchains<'_>,
) -> Vec<(String, String)> {
    let mut inside: Vec<_> = outside.filter(|(name, _)| is_kept(name)).collect();
    let path = format!("{}/bin:{}/bin:{PATH}", toolchains.rust.display(), toolchains.go.display());
    let ours = [("HOME", home), ("PATH", &path), ("DEBIAN_FRONTEND", "noninteractive"), (super::asked::INSIDE, "1")];
    inside.extend(ours.map(|(name, value)| (name.to_owned(), value.to_owned())));
    inside
}

/// The files of certificates that variables name.
pub(super) fn certificates(inside: &[(String, String)]) -> impl Iterator<Item = &Path> {
    let named = inside.iter().filter(|(name, _)| CERTIFICATES.contains(&name.as_str()));
    named.map(|(_, path)| Path::new(path.as_str()))
}

fn is_kept(name: &str) -> bool {
    let listed = KEPT.contains(&name) || CERTIFICATES.contains(&name);
    let configures = KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (listed || configures || name.to_ascii_lowercase().ends_with(PROXY)) && !name.ends_with(SECRET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_package_clients_need_goes_in_and_nothing_else() {
        let outside = [
            ("GOPROXY", "p"),
            ("GOFLAGS", "f"),
            ("https_proxy", "h"),
            ("HTTP_PROXY", "h"),
            ("CARGO_REGISTRIES_OURS_INDEX", "i"),
            ("CARGO_HTTP_CAINFO", "/etc/ca.pem"),
            ("CI", "true"),
            ("PATH", "/home/me/bin"),
            ("HOME", "/elsewhere"),
            ("CARGO_TARGET_DIR", "/t"),
            ("CARGO_MANIFEST_DIR", "/m"),
            ("CARGO_REGISTRIES_OURS_TOKEN", "secret"),
            ("CARGO_REGISTRY_TOKEN", "secret"),
            ("RUSTUP_TOOLCHAIN", "nightly"),
            ("PROTOC", "/home/me/protoc"),
            ("CC", "clang"),
        ];
        let outside = outside.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let toolchains = Toolchains { rust: Path::new("/rust"), go: Path::new("/go") };
        let inside = inside(outside.into_iter(), "/home/me", &toolchains);
        let names: Vec<&str> = inside.iter().map(|(name, _)| name.as_str()).collect();
        let kept =
            ["GOPROXY", "GOFLAGS", "https_proxy", "HTTP_PROXY", "CARGO_REGISTRIES_OURS_INDEX", "CARGO_HTTP_CAINFO"];
        let ours = ["CI", "HOME", "PATH", "DEBIAN_FRONTEND", crate::fresh::asked::INSIDE];
        assert_eq!(names, [&kept[..], &ours[..]].concat());
        assert!(inside.iter().any(|(name, value)| name == "HOME" && value == "/home/me"));
        assert!(inside.iter().any(|(name, value)| name == "PATH" && value.starts_with("/rust/bin:/go/bin:/usr/local")));
        assert_eq!(certificates(&inside).collect::<Vec<_>>(), [Path::new("/etc/ca.pem")]);
    }
}
