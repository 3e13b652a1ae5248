//! `cluster proxy`: where programs of this host say, in SOCKS5, which machine of a virtual cluster they want to reach.

use std::io::Write;

use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format};
use crate::virtual_network::{self, NetworkError};

#[derive(Debug, Serialize)]
struct ProxyOut {
    url: String,
}

/// Makes the proxy listen from now on, for as long as the network runs, and shows its URL.
pub(crate) fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let network = virtual_network::of(&context.store, &context.cluster()?)?;
    let url = network.proxy().map_err(NetworkError::from)?.url();
    match context.format {
        Format::Json => screen::json(out, &ProxyOut { url })?,
        Format::Table => writeln!(out, "{url}")?,
    }
    Ok(())
}
