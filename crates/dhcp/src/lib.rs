//! DHCPv4 client and server without sockets or clock.
