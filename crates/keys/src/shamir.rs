//! Shamir's secret sharing ("How to share a secret", CACM 22(11), 1979) over GF(2^8), each of 32 bytes by itself. The field
//! is that of AES (FIPS 197, section 4.2). No table and no branch depends on a secret.

use std::num::NonZeroU8;

use model::Secret;

/// Point of the polynomial: no holder has the place zero, where the secret is.
#[derive(Debug)]
pub(crate) struct Point {
    /// Where.
    pub at: NonZeroU8,
    /// The polynomial's value there.
    pub value: Secret<32>,
}

/// The polynomial's value at `at`; the first coefficient is the secret.
pub(crate) fn evaluate(coefficients: &[Secret<32>], at: NonZeroU8) -> Secret<32> {
    let mut value = zero();
    for coefficient in coefficients.iter().rev() {
        value = fill(|byte| multiply(value.expose()[byte], at.get()) ^ coefficient.expose()[byte]);
    }
    value
}

/// The secret of a polynomial of as many coefficients as there are points; of fewer or wrong points, any other 32 bytes.
/// No two points are at one place.
pub(crate) fn secret_of(points: &[&Point]) -> Secret<32> {
    let weights: Vec<u8> = points.iter().map(|point| weight(point, points)).collect();
    fill(|byte| {
        points.iter().zip(&weights).fold(0, |sum, (point, weight)| sum ^ multiply(point.value.expose()[byte], *weight))
    })
}

/// Lagrange's weight of a point for the value at zero. Places are public.
fn weight(of: &Point, points: &[&Point]) -> u8 {
    let others = points.iter().map(|point| point.at.get()).filter(|at| *at != of.at.get());
    others.fold(1, |product, at| multiply(product, multiply(at, inverse(at ^ of.at.get()))))
}

fn zero() -> Secret<32> {
    fill(|_| 0)
}

fn fill(byte: impl Fn(usize) -> u8) -> Secret<32> {
    let filled = Secret::fill(|bytes: &mut [u8; 32]| {
        bytes.iter_mut().enumerate().for_each(|(at, out)| *out = byte(at));
        Ok::<(), std::convert::Infallible>(())
    });
    match filled {
        Ok(secret) => secret,
        Err(never) => match never {},
    }
}

/// The product in GF(2^8), in the same steps for every input.
const fn multiply(left: u8, right: u8) -> u8 {
    let (mut product, mut left, mut bit) = (0, left, 0);
    while bit < 8 {
        product ^= left & (right >> bit & 1).wrapping_neg();
        left = left << 1 ^ 0x1b & (left >> 7).wrapping_neg(); // x^8 + x^4 + x^3 + x + 1
        bit += 1;
    }
    product
}

/// `1 / of`, as `of` to the power of 254; zero of zero.
const fn inverse(of: u8) -> u8 {
    let (mut result, mut power, mut bit) = (1, of, 1);
    while bit < 8 {
        power = multiply(power, power);
        result = multiply(result, power);
        bit += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(at: usize) -> NonZeroU8 {
        NonZeroU8::new(u8::try_from(at).expect("small")).expect("not zero")
    }

    fn points(coefficients: &[Secret<32>], places: &[usize]) -> Vec<Point> {
        let of = |at: &usize| Point { at: place(*at), value: evaluate(coefficients, place(*at)) };
        places.iter().map(of).collect()
    }

    fn combined(points: &[Point]) -> [u8; 32] {
        *secret_of(&points.iter().collect::<Vec<_>>()).expose()
    }

    #[test]
    fn the_field_is_that_of_fips_197() {
        assert_eq!(multiply(0x57, 0x83), 0xc1, "section 4.2");
        assert_eq!(multiply(0x57, 0x13), 0xfe, "section 4.2.1");
        assert!((1..=255).all(|of| multiply(of, inverse(of)) == 1));
        assert_eq!(inverse(0), 0);
    }

    proptest! {
        #[test]
        fn a_quorum_of_points_gives_the_secret_and_one_fewer_does_not(
            coefficients in prop::collection::vec(any::<[u8; 32]>(), 1..=4),
            places in Just((1_usize..=7).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let needed = coefficients.len();
            prop_assume!(coefficients[needed - 1] != [0; 32]);
            let polynomial: Vec<_> = coefficients.iter().map(|bytes| Secret::take(&mut bytes.clone())).collect();
            let held = points(&polynomial, &places[..needed]);
            prop_assert_eq!(combined(&held), coefficients[0]);
            prop_assert_ne!(combined(&held[1..]), coefficients[0]);
        }
    }
}
