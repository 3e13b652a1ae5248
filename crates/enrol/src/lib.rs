//! Enrolment: what was found, what it means, the order of create. Pure.
