//! The initramfs: a tree of files in, one newc archive out, the same bytes every time.
