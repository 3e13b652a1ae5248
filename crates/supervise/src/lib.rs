//! The supervision tree as a pure machine: exits in, starts and stops out.
