//! The key scheme: purposes, data header, seal file. Pure.
