//! Certificates: issues and verifies, given the time.
