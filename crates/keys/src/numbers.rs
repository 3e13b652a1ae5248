//! The numbers that stand for policy words in stored protobuf: in the seal and in the enrolment config alike.
//! Zero stands for nothing, so that a forgotten field is not a choice.

use model::{BootClass, ColdStart, Level, Role};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty { $($variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        pub mod $name {
            use super::*;

            /// The number that is stored.
            #[must_use]
            pub const fn number(value: $type) -> u32 {
                match value { $(<$type>::$variant => $number,)* }
            }

            /// What a stored number means; none for those of a later version.
            #[must_use]
            pub const fn of(number: u32) -> Option<$type> {
                match number {
                    $($number => Some(<$type>::$variant),)*
                    _ => None, // whatever a later version knows
                }
            }
        }
    )*};
}

numbers! {
    /// Levels of protection.
    level: Level { Insecure = 1, Encrypted = 2, Authenticated = 3, }
    /// Boot classes.
    boot_class: BootClass { UefiSecureBoot = 1, Uefi = 2, Direct = 3, }
    /// Cold start policies.
    cold_start: ColdStart { Automatic = 1, Manual = 2, }
    /// Roles.
    role: Role { Coordinator = 1, Node = 2, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_own_number_and_zero_none() {
        assert!(Level::ALL.iter().all(|value| level::of(level::number(*value)) == Some(*value)));
        assert!(BootClass::ALL.iter().all(|value| boot_class::of(boot_class::number(*value)) == Some(*value)));
        assert!(ColdStart::ALL.iter().all(|value| cold_start::of(cold_start::number(*value)) == Some(*value)));
        assert!(Role::ALL.iter().all(|value| role::of(role::number(*value)) == Some(*value)));
        // Those of FORMATS.md.
        assert_eq!([1, 2, 3].map(level::of), [Level::Insecure, Level::Encrypted, Level::Authenticated].map(Some));
        assert_eq!(boot_class::of(1), Some(BootClass::UefiSecureBoot));
        assert_eq!([2, 3].map(boot_class::of), [BootClass::Uefi, BootClass::Direct].map(Some));
        assert_eq!([1, 2].map(cold_start::of), [ColdStart::Automatic, ColdStart::Manual].map(Some));
        assert_eq!([1, 2].map(role::of), [Role::Coordinator, Role::Node].map(Some));
        assert_eq!((level::of(0), boot_class::of(0), cold_start::of(0), role::of(0)), (None, None, None, None));
    }
}
