//! PID 1 stays small: what the start of a service and the calls of the API have freed goes back to the kernel, for the C
//! library would keep it. It must never hold anything itself.

use std::time::Duration;

use crate::runtime::services::Services;

/// After this long without a change in a service, memory that calls have freed goes back, too.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Gives memory back after each change of a service and now and then, as long as there are services.
pub(crate) async fn keep_small(services: Services) {
    let mut changes = services.watch();
    while !matches!(tokio::time::timeout(LOOK_AGAIN, changes.changed()).await, Ok(Err(_services_ended))) {
        sys::memory::give_back();
    }
}
