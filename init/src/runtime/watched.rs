//! Values that others wait on: they wake where a value has become another.

use tokio::sync::watch;

/// Tells `value` to whoever waits; nobody wakes where it is what was told before.
pub(crate) fn tell_changed<T: PartialEq>(whom: &watch::Sender<T>, value: T) {
    whom.send_if_modified(|told| {
        let is_other = *told != value;
        if is_other {
            *told = value;
        }
        is_other
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_value_wakes_where_it_is_another() {
        let (told, mut heard) = watch::channel(1);
        tell_changed(&told, 1);
        assert!(!heard.has_changed().expect("it is open"));
        tell_changed(&told, 2);
        assert!(heard.has_changed().expect("it is open"));
        assert_eq!(*heard.borrow_and_update(), 2);
    }
}
