//! Runtime of PID 1, on which every part runs: tasks and children, the clock, the log, memory. Knows nothing of the
//! machine or its cluster.

pub(crate) mod child;
pub(crate) mod clock;
pub(crate) mod console;
pub(crate) mod durable;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod read_ahead;
pub(crate) mod services;
pub(crate) mod standstills;
pub(crate) mod streams;
pub(crate) mod tasks;
pub(crate) mod tls;
pub(crate) mod watched;
