//! One plain function per parser of foreign bytes; the corpus replays on stable.
